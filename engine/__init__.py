"""Everything between a model and a running replay; imports torch only where a stage needs it."""
