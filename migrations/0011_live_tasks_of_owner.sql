-- A person's tasks that are not over are found among those alone, however many are over.
CREATE INDEX tasks_live_by_owner ON tasks (owner, seq) WHERE over = 0;
