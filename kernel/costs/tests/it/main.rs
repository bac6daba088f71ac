//! The arithmetic of choices, against what a search finds.
mod choices;
mod crossing;
mod learning;
