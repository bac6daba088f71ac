//! Recordings whose processes would wait for each other for ever: sound ones, as the kernel of the recording held more
//! in its pipes, and damaged ones.

use pageferry_lab::files::{KernelChoice, MachineChoice};
use pageferry_lab::workloads::strace::{ReplayReport, replay};
use proptest::prelude::*;
use proptest::sample::Index;

fn run(kernel: &str, text: &str) -> ReplayReport {
    let machine = MachineChoice::find("xeon-mp").expect("a machine");
    let kernel = KernelChoice::find(kernel).expect("a kernel");
    let replayed = replay(&machine, &kernel, "test.strace", text.as_bytes(), None)
        .unwrap_or_else(|error| panic!("{error}\n{text}"));
    let broken: Vec<_> = replayed.laws.iter().filter(|law| !law.held).collect();
    assert!(broken.is_empty(), "{broken:?}\n{text}");
    replayed
}

/// A process writes so many bytes, and its child, which is made after that, reads them.
fn written_before_its_reader_is_there(len: usize) -> String {
    format!(
        "10 pipe2([3, 4], 0) = 0\n10 write(4, \"x\"..., {len}) = {len}\n10 fork() = 11\n10 close(4) = 0\n\
         11 close(4) = 0\n11 read(3, \"x\"..., {len}) = {len}\n11 read(3, \"\", 4096) = 0\n\
         11 +++ exited with 0 +++\n10 wait4(-1, NULL, 0, NULL) = 11\n10 +++ exited with 0 +++\n"
    )
}

#[test]
fn what_linux_holds_in_a_pipe_is_held_here_where_the_pipe_can_grow() {
    for kernel in ["sf_buf", "original"] {
        for len in [1, 512, 4096, 8191, 8192, 16384, 20000, 65536] {
            let replayed = run(kernel, &written_before_its_reader_is_there(len));
            assert_eq!(replayed.first_deviations, [], "{kernel}: {len}");
            assert_eq!(replayed.calls["read"].bytes, len as u64, "{kernel}: {len}");
        }
    }
}

#[test]
fn what_no_pipe_here_holds_is_left_out_and_told() {
    // Linux's pipes grow to a megabyte when a program asks; and many small writes fill a pipe of this kernel.
    let larger = written_before_its_reader_is_there(65537);
    let small = "10 write(4, \"x\"..., 8000) = 8000\n".repeat(8);
    let many =
        written_before_its_reader_is_there(64000).replace("10 write(4, \"x\"..., 64000) = 64000\n", &small);
    for (text, told) in [(larger, 2), (many, 7)] {
        let replayed = run("sf_buf", &text);
        assert_eq!(replayed.deviations, told, "{:?}", replayed.first_deviations);
        let told = &replayed.first_deviations[0].what;
        assert!(told.contains("waits for this call"), "{told}");
    }
}

#[test]
fn a_read_before_the_only_write_of_its_bytes_is_left_out_and_told() {
    // The child reads what its parent writes after a file that the child makes.
    let text = "10 pipe2([3, 4], 0) = 0\n10 fork() = 11\n11 read(3, \"abc\", 3) = 3\n11 mkdir(\"a\", 0777) = 0\n\
                10 stat(\"a\", {st_mode=S_IFDIR|0755, st_size=0, ...}) = 0\n10 write(4, \"abc\", 3) = 3\n\
                11 +++ exited with 0 +++\n10 +++ exited with 0 +++\n";
    let replayed = run("sf_buf", text);
    assert_eq!(replayed.deviations, 2, "{:?}", replayed.first_deviations);
}

#[test]
fn what_a_recording_cannot_mean_is_left_out_and_told() {
    // A process that was waited for makes calls: they are another's.
    run(
        "sf_buf",
        "10 pipe2([3, 4], 0) = 0\n10 fork() = 11\n11 mkdir(\"a\", 0777) = 0\n10 wait4(-1, NULL, 0, NULL) = 11\n\
         10 fork() = 12\n12 write(4, \"go\", 2) = 2\n11 +++ exited with 0 +++\n11 rmdir(\"a\") = 0\n\
         12 rmdir(\"a\") = -1 ENOENT (No such file or directory)\n12 +++ exited with 0 +++\n\
         10 read(3, \"go\", 2) = 2\n10 +++ exited with 0 +++\n",
    );
    let text = "pipe2([3, 4], 0) = 0\nclose(3) = 0\nwrite(4, \"x\", 1) = 1\n";
    let replayed = run("sf_buf", text);
    assert_eq!(replayed.deviations, 1, "{:?}", replayed.first_deviations);
    assert!(replayed.first_deviations[0].what.contains("nobody can read"), "{:?}", replayed.first_deviations);
}

#[test]
fn a_process_goes_on_after_its_parent_has_ended() {
    // As daemons do: the first process waits for the second, and the third goes on.
    let text = "10 pipe2([3, 4], 0) = 0\n10 fork() = 11\n11 fork() = 12\n11 +++ exited with 0 +++\n\
                10 wait4(-1, NULL, 0, NULL) = 11\n10 mkdir(\"a\", 0777) = 0\n10 write(4, \"go\", 2) = 2\n\
                10 +++ exited with 0 +++\n12 stat(\"a\", {st_mode=S_IFDIR|0755, st_size=0, ...}) = 0\n\
                12 read(3, \"go\", 9) = 2\n12 close(4) = 0\n12 read(3, \"\", 9) = 0\n12 +++ exited with 0 +++\n";
    let replayed = run("sf_buf", text);
    assert_eq!(
        (replayed.first_deviations.len(), replayed.processes),
        (0, 3),
        "{:?}",
        replayed.first_deviations
    );
}

/// Two pipes between two processes, with more than they hold at a time.
const BOTH_WAYS: &str = "10 pipe2([3, 4], 0) = 0\n10 pipe2([5, 6], 0) = 0\n10 fork() = 11\n\
    10 write(4, \"x\"..., 70000) = 70000\n11 read(3, \"x\"..., 70000) = 70000\n11 write(6, \"y\"..., 70000) = 70000\n\
    10 read(5, \"y\"..., 40000) = 40000\n10 read(5, \"y\"..., 40000) = 30000\n11 close(6) = 0\n10 close(6) = 0\n\
    10 read(5, \"\", 9) = 0\n11 +++ exited with 0 +++\n10 wait4(-1, NULL, 0, NULL) = 11\n\
    10 +++ exited with 0 +++\n";

/// A process waits for others' ends of a pipe and for a file.
const ENDS: &str = "10 pipe2([3, 4], 0) = 0\n10 pipe2([5, 6], 0) = 0\n10 fork() = 11\n11 close(4) = 0\n10 fork() = 12\n\
    10 close(4) = 0\n12 close(4) = 0\n12 read(3, \"\", 100) = 0\n12 write(6, \"done\", 4) = 4\n\
    11 read(5, \"done\", 4) = 4\n11 +++ exited with 0 +++\n12 +++ exited with 0 +++\n\
    10 wait4(-1, NULL, 0, NULL) = 11\n10 wait4(-1, NULL, 0, NULL) = 12\n10 +++ exited with 0 +++\n";

/// Processes that meet at files.
const FILES: &str = "10 pipe2([3, 4], 0) = 0\n10 fork() = 11\n11 open(\"a\", O_RDWR|O_CREAT, 0644) = 7\n\
    11 write(7, \"abcdef\", 6) = 6\n10 fork() = 12\n12 open(\"a\", O_RDONLY) = 7\n12 read(7, \"abcdef\", 10) = 6\n\
    12 write(4, \"go\", 2) = 2\n11 read(3, \"go\", 2) = 2\n11 unlink(\"a\") = 0\n\
    10 stat(\"a\", 0x7ffd) = -1 ENOENT (No such file or directory)\n10 write(4, \"x\"..., 600) = 600\n\
    12 read(3, \"x\"..., 600) = 600\n12 dup2(7, 9) = 9\n12 close(7) = 0\n11 +++ exited with 0 +++\n\
    12 +++ exited with 0 +++\n10 wait4(-1, NULL, 0, NULL) = 11\n10 wait4(-1, NULL, 0, NULL) = 12\n\
    10 +++ exited with 0 +++\n";

#[test]
fn the_recordings_that_are_damaged_below_are_sound() {
    for text in [BOTH_WAYS, ENDS, FILES] {
        assert_eq!(run("sf_buf", text).first_deviations, [], "{text}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { ..ProptestConfig::default() })]

    /// Lines are lost, doubled and moved, and digits become others: the processes come to their end, and every law
    /// holds.
    #[test]
    fn a_damaged_recording_comes_to_an_end(
        which in 0..3usize,
        kernel in prop_oneof![Just("sf_buf"), Just("original"), Just("uvm"), Just("uvm-paging")],
        changes in proptest::collection::vec((any::<Index>(), 0..4u8, any::<Index>(), 0..10u8), 1..6),
    ) {
        let mut lines: Vec<String> = [BOTH_WAYS, ENDS, FILES][which].lines().map(str::to_owned).collect();
        for (at, how, other, digit) in changes {
            let (at, other) = (at.index(lines.len()), other.index(lines.len()));
            match how {
                0 if lines.len() > 1 => drop(lines.remove(at)),
                1 => lines.insert(other, lines[at].clone()),
                2 => lines.swap(at, other),
                _ => {
                    let digits: Vec<usize> =
                        lines[at].char_indices().filter(|(_, c)| c.is_ascii_digit()).map(|(i, _)| i).collect();
                    if !digits.is_empty() {
                        let place = digits[other % digits.len()];
                        lines[at].replace_range(place..=place, &digit.to_string());
                    }
                }
            }
        }
        run(kernel, &lines.join("\n"));
    }
}
