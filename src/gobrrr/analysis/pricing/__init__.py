"""What work needs: FLOPs, bytes and the least time on a machine, for each call of a step or a recording."""
