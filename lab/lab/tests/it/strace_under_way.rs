//! Recordings in which something changes while a call is under way: its descriptor goes, or its process.

use crate::strace::{as_recorded, run};

const THREAD: &str =
    "10 clone(child_stack=0x7f0000, flags=CLONE_VM|CLONE_FS|CLONE_FILES|CLONE_SIGHAND|CLONE_THREAD) = 11\n";

/// Whatever frees the number of a descriptor, a call that had begun with it goes on with what it was.
#[test]
fn a_call_goes_on_with_what_its_descriptor_was() {
    for (frees, comes) in [
        ("10 close(3) = 0\n", "10 openat(AT_FDCWD, \"f\", O_RDONLY) = 3\n"),
        ("10 close(3) = -1 EINTR (Interrupted system call)\n", "10 openat(AT_FDCWD, \"f\", O_RDONLY) = 3\n"),
        ("10 close_range(3, 3, 0) = 0\n", "10 openat(AT_FDCWD, \"f\", O_RDONLY) = 3\n"),
        ("10 openat(AT_FDCWD, \"f\", O_RDONLY) = 7\n", "10 dup2(7, 3) = 3\n"),
        // Nothing comes in its place.
        ("10 close(3) = 0\n", "10 openat(AT_FDCWD, \"f\", O_RDONLY) = 8\n10 dup3(8, 3, 0) = 3\n"),
    ] {
        let replayed = as_recorded(&format!(
            "10 pipe2([3, 4], 0) = 0\n{THREAD}11 read(3,  <unfinished ...>\n{frees}{comes}\
             10 write(4, \"hello\", 5) = 5\n11 <... read resumed>\"hello\", 100) = 5\n\
             11 read(3, \"file\", 4) = 4\n10 read(3, \"more\", 4) = 4\n10 read(3, \"\", 4) = 0\n\
             10 close(4) = 0\n10 close(3) = 0\n10 +++ exited with 0 +++\n"
        ));
        assert!(
            !replayed.not_modelled.keys().any(|what| what.contains("opened")),
            "{:?}",
            replayed.not_modelled
        );
    }
}

#[test]
fn several_calls_may_be_under_way_on_a_descriptor_that_goes() {
    let other = THREAD.replace("= 11", "= 12");
    // The file is written to where it was, and what has its number now is not.
    as_recorded(&format!(
        "10 openat(AT_FDCWD, \"f\", O_RDWR|O_CREAT|O_EXCL, 0666) = 3\n{THREAD}{other}\
         11 write(3, \"abc\", 3 <unfinished ...>\n12 write(3, \"defg\", 4 <unfinished ...>\n10 close(3) = 0\n\
         10 openat(AT_FDCWD, \"g\", O_RDWR|O_CREAT|O_EXCL, 0666) = 3\n11 <... write resumed>) = 3\n\
         12 <... write resumed>) = 4\n12 write(3, \"xy\", 2) = 2\n\
         10 stat(\"f\", {{st_mode=S_IFREG|0644, st_size=7, ...}}) = 0\n\
         10 stat(\"g\", {{st_mode=S_IFREG|0644, st_size=2, ...}}) = 0\n10 +++ exited with 0 +++\n"
    ));
    // A path from a directory.
    as_recorded(&format!(
        "10 openat(AT_FDCWD, \"d\", O_RDONLY|O_DIRECTORY) = 3\n{THREAD}\
         11 openat(3, \"f\", O_RDWR|O_CREAT|O_EXCL, 0666 <unfinished ...>\n10 close(3) = 0\n\
         10 openat(AT_FDCWD, \"e\", O_RDONLY|O_DIRECTORY) = 3\n11 <... openat resumed>) = 4\n\
         10 stat(\"d/f\", {{st_mode=S_IFREG|0644, st_size=0, ...}}) = 0\n\
         10 stat(\"e/f\", 0x7ffe) = -1 ENOENT (No such file or directory)\n10 +++ exited with 0 +++\n"
    ));
}

/// What is kept for a call keeps a pipe's end from being seen by others no longer than the call takes, and never in a
/// child.
#[test]
fn what_is_kept_for_a_call_is_closed_behind_it() {
    as_recorded(&format!(
        "10 pipe2([3, 4], 0) = 0\n10 pipe2([5, 6], 0) = 0\n{THREAD}11 write(4, \"abc\", 3 <unfinished ...>\n\
         10 close(4) = 0\n10 fork() = 20\n20 close(6) = 0\n11 <... write resumed>) = 3\n20 read(3, \"abc\", 9) = 3\n\
         20 read(3, \"\", 9) = 0\n20 +++ exited with 0 +++\n10 wait4(-1, NULL, 0, NULL) = 20\n\
         10 +++ exited with 0 +++\n"
    ));
}

#[test]
fn a_write_that_did_not_return_has_written_what_others_read() {
    let recording = |read: &str| {
        format!(
            "10 pipe2([3, 4], 0) = 0\n10 fork() = 11\n11 close(3) = 0\n11 write(4, \"\\0\"..., 9000 <unfinished ...>\n\
             {read}10 kill(11, SIGKILL) = 0\n11 <... write resumed>) = ?\n11 +++ killed by SIGKILL +++\n\
             10 wait4(11,  <unfinished ...>\n10 <... wait4 resumed>[{{WIFSIGNALED(s)}}], 0, NULL) = 11\n\
             10 close(4) = 0\n10 read(3, \"\\0\"..., 4000) = 500\n10 read(3, \"\", 4000) = 0\n\
             10 +++ exited with 0 +++\n"
        )
    };
    as_recorded(&recording(""));
    as_recorded(&recording("10 read(3, \"\\0\"..., 4000) = 4000\n"));
    // More than it was asked to write, nobody has written.
    let replayed = run("sf_buf", &recording("10 read(3, \"\\0\"..., 8900) = 8900\n")).expect("it runs");
    assert!(replayed.laws.iter().all(|law| law.held), "{:?}", replayed.laws);
    assert_eq!(replayed.first_deviations.len(), 1);
}

/// A read that returned before the write of another thread that it has read from.
#[test]
fn threads_read_what_others_are_writing() {
    as_recorded(&format!(
        "10 pipe2([3, 4], 0) = 0\n{THREAD}11 read(3,  <unfinished ...>\n10 write(4, \"hello\", 5 <unfinished ...>\n\
         11 <... read resumed>\"hello\", 100) = 5\n10 <... write resumed>) = 5\n10 read(3,  <unfinished ...>\n\
         11 write(4, \"ab\", 2 <unfinished ...>\n10 <... read resumed>\"ab\", 9) = 2\n11 <... write resumed>) = 2\n\
         10 +++ exited with 0 +++\n"
    ));
}
