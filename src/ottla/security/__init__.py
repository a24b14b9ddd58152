"""Who a client is and what it may do: principals, SASL mechanisms, ACLs. Decisions without I/O."""
