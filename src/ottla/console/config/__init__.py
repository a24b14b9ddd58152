"""What a console is asked to show, from the command line or a file."""
