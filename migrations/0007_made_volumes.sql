-- A volume whose claim was there is never made again: what was in it would be missing without a word.
ALTER TABLE volumes ADD COLUMN made INTEGER NOT NULL DEFAULT 0 CHECK (made IN (0, 1));
ALTER TABLE volumes ADD COLUMN lost INTEGER NOT NULL DEFAULT 0 CHECK (lost IN (0, 1));
