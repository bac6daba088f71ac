#![no_main]

#[path = "../../tests/fuzz/inputs.rs"]
#[allow(dead_code, reason = "each target is one of its functions")]
mod inputs;
#[path = "../../tests/peer/mod.rs"]
mod peer;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| inputs::messages(bytes));
