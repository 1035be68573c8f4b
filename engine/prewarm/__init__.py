"""A file of builds, checked as a whole and made one by one."""
