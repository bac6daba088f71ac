//! Real data through a modelled pipe, and what goes wrong at its ends.

use pageferry_lab::files::{KernelChoice, MachineChoice};
use pageferry_lab::workloads::stream::{Ends, TransferReport, Ways, stream};
use pageferry_lab::{Blame, LabError};
use std::cell::RefCell;
use std::io::{self, Read, Write};
use std::rc::Rc;

#[derive(Clone, Default)]
struct Sink(Rc<RefCell<Vec<u8>>>);

impl Write for Sink {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().write(buf)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Gives some bytes, then fails.
struct Broken(usize);

impl Read for Broken {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.0 == 0 {
            return Err(io::Error::other("the disk is on fire"));
        }
        let len = buf.len().min(self.0);
        buf[..len].fill(7);
        self.0 -= len;
        Ok(len)
    }
}

/// Takes some bytes, then fails.
struct Full(usize);

impl Write for Full {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let len = buf.len().min(self.0);
        self.0 -= len;
        if len == 0 { Err(io::Error::other("no space left")) } else { Ok(len) }
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn carry(
    kernel: &str,
    chunk: usize,
    input: Box<dyn Read>,
    expected_bytes: Option<u64>,
    output: Box<dyn Write>,
) -> Result<TransferReport, LabError> {
    let ends = Ends {
        input,
        input_name: "IN".into(),
        expected_bytes,
        output,
        output_name: "OUT".into(),
        progress: Box::new(|_| ()),
    };
    let (machine, kernel) =
        (MachineChoice::find("xeon-mp").expect("there"), KernelChoice::find(kernel).expect("there"));
    stream(&machine, &kernel, chunk, Ways::default(), ends)
}

#[test]
fn what_goes_in_comes_out() {
    let bytes: Vec<u8> = (0..300_007u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    for kernel in ["original", "sf_buf", "sf_buf-shared"] {
        for (len, chunk) in
            [(0, 65536), (1, 65536), (4096, 4096), (300_007, 65536), (300_007, 5000), (300_007, 100_000)]
        {
            let sink = Sink::default();
            let input = io::Cursor::new(bytes[..len].to_vec());
            let moved = carry(kernel, chunk, Box::new(input), Some(len as u64), Box::new(sink.clone()));
            let moved = moved.unwrap_or_else(|e| panic!("{e}"));
            assert!(moved.identical && moved.laws.iter().all(|law| law.held), "{:?}", moved.laws);
            assert_eq!(moved.len_bytes, len as u64);
            assert!(*sink.0.borrow() == bytes[..len], "{len} bytes in chunks of {chunk} under {kernel}");
            assert_eq!(moved.elapsed_us > 0.0, len > 0);
        }
    }
}

#[test]
fn large_writes_are_copied_once_and_small_ones_twice() {
    let copies = |chunk: usize| {
        let input = io::Cursor::new(vec![1; 1 << 20]);
        carry("sf_buf", chunk, Box::new(input), None, Box::new(io::sink())).expect("carried").copies_per_byte
    };
    assert!((copies(65536) - 1.0).abs() < 0.01);
    assert!((copies(4096) - 2.0).abs() < 0.01);
}

#[test]
fn the_hash_is_sha_256() {
    let moved = carry("sf_buf", 65536, Box::new(&b"abc"[..]), None, Box::new(io::sink())).expect("carried");
    assert_eq!(moved.sha256, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

#[test]
fn failures_name_the_end_that_failed() {
    let message = |result: Result<TransferReport, LabError>| {
        let error = result.expect_err("it failed");
        assert_eq!(error.blame(), Blame::Input);
        error.to_string()
    };
    for chunk in [4096, 65536] {
        let read = message(carry("sf_buf", chunk, Box::new(Broken(200_000)), None, Box::new(io::sink())));
        assert_eq!(read, "cannot read IN: the disk is on fire");
        let input = io::Cursor::new(vec![1; 1 << 20]);
        let written = message(carry("original", chunk, Box::new(input), None, Box::new(Full(200_000))));
        assert_eq!(written, "cannot write OUT: no space left");
        let short = message(carry(
            "sf_buf",
            chunk,
            Box::new(io::repeat(1).take(999)),
            Some(1000),
            Box::new(io::sink()),
        ));
        assert_eq!(short, "cannot read IN: it ended after 999 of 1000 bytes");
    }
}

#[test]
fn a_chunk_larger_than_memory_is_refused() {
    let error =
        carry("sf_buf", 2 << 30, Box::new(io::empty()), None, Box::new(io::sink())).expect_err("too large");
    assert!(error.to_string().contains("do not fit"), "{error}");
}
