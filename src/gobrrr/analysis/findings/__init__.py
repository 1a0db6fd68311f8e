"""What a finding rests on: the evidence, the part of the timeline that it claims, and what the step would save."""
