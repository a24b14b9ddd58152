"""TLS, logins, permissions and quotas."""
