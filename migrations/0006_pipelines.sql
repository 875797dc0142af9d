-- Tasks that run one after the other. A pipeline goes by the id of its first task.
ALTER TABLE tasks ADD COLUMN pipeline TEXT;
ALTER TABLE tasks ADD COLUMN pipeline_name TEXT;
ALTER TABLE tasks ADD COLUMN stage INTEGER;         -- from 1
ALTER TABLE tasks ADD COLUMN stages INTEGER;        -- how many there are
ALTER TABLE tasks ADD COLUMN waits_for TEXT;        -- the stage before, until that has succeeded
CREATE INDEX tasks_by_pipeline ON tasks (pipeline, stage) WHERE pipeline IS NOT NULL;
