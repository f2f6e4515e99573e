//! Helpers around a source, one idea each.

pub mod coalesce;
pub mod count;
