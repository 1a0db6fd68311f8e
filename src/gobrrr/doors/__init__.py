"""From what comes in at a door (a trace, a step that is run here, a recording without a device) to a Diagnosis."""
