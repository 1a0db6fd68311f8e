"""What the operating system says of this process and those beside it: processors, quotas, waits."""
