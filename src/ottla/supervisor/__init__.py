"""The broker processes of a cluster on one host: started, watched and stopped by one parent."""
