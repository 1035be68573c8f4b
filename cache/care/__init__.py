"""Care of a store: what lies in it, what may go, what is damaged. A boot imports none of it."""
