"""What all treatments share: their form, their wording, and how they are applied, combined and prescribed."""
