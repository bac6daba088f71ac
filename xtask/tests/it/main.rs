//! The source is as it should be, and each check finds a fault that is planted for it.

mod metal;
mod planted;
mod tidy;
