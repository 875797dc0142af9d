-- As of which generation of the claim's object that text was in force. NULL: stored before this was known.

ALTER TABLE claims_in_force ADD COLUMN uid TEXT;
ALTER TABLE claims_in_force ADD COLUMN generation INTEGER;
