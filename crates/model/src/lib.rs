//! stub
pub mod sourced;
pub mod config;
pub mod cache;
