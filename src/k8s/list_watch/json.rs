//! Lists and watches in JSON.
