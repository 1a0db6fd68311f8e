"""What the remedies share: their form and their words, how they are applied, combined and prescribed."""
