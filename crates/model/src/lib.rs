//! stub
pub mod cache;
pub mod config;
pub mod sourced;
