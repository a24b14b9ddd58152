"""Client quotas: whom they are for, what they allow, and how rates are measured. Pure."""
