//! Every function on a file, and what a crash, a second daemon, a newer or a damaged file do.
