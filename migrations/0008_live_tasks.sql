-- How many tasks a person has that are not over is asked at each that they hand in.
CREATE INDEX tasks_live_by_owner ON tasks (owner) WHERE over = 0;
