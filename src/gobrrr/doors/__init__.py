"""Each door turns its input (a trace, a step that is run here, a recording without a device) into a Diagnosis."""
