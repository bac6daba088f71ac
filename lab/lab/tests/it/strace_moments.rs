//! Recordings in which processes see what others do before the calls that do it have returned.

use crate::strace::{as_recorded, run};
use pageferry_lab::workloads::strace::ReplayReport;

/// Two processes that were forked by a third, which has made the directory `/w`, and in it a file `f` of 100 bytes that
/// is open as 3.
fn beside(lines: &str) -> String {
    format!(
        "1 mkdir(\"/w\", 0777) = 0\n1 openat(AT_FDCWD, \"/w/f\", O_RDWR|O_CREAT|O_EXCL, 0666) = 3\n\
         1 write(3, \"x\"..., 100) = 100\n1 fork() = 2\n1 fork() = 3\n{lines}2 +++ exited with 0 +++\n\
         3 +++ exited with 0 +++\n1 wait4(-1, NULL, 0, NULL) = 2\n1 wait4(-1, NULL, 0, NULL) = 3\n\
         1 +++ exited with 0 +++\n"
    )
}

/// A call that changes something, and its end; what another process saw before that end; what comes before both.
const SEEN: &[(&str, &str, &str, &str)] = &[
    // Bytes, at an offset, at the end, at the offset that both share, and in pieces.
    (
        "pwrite64(3, \"x\"..., 50, 100 <unfinished ...>",
        "<... pwrite64 resumed>) = 50",
        "3 pread64(3, \"x\"..., 1000, 0) = 150\n",
        "",
    ),
    (
        "write(5, \"x\"..., 50 <unfinished ...>",
        "<... write resumed>) = 50",
        "3 fstat(3, {st_mode=S_IFREG|0644, st_size=150, ...}) = 0\n",
        "2 openat(AT_FDCWD, \"/w/f\", O_WRONLY|O_APPEND) = 5\n",
    ),
    (
        "writev(3, [{iov_base=\"x\", iov_len=1}, {iov_base=\"y\", iov_len=2}], 2 <unfinished ...>",
        "<... writev resumed>) = 3",
        "3 stat(\"/w/f\", {st_mode=S_IFREG|0644, st_size=103, ...}) = 0\n",
        "",
    ),
    (
        "copy_file_range(3, [0], 5, NULL, 100, 0 <unfinished ...>",
        "<... copy_file_range resumed>) = 100",
        "3 stat(\"/w/g\", {st_mode=S_IFREG|0644, st_size=100, ...}) = 0\n",
        "2 openat(AT_FDCWD, \"/w/g\", O_WRONLY|O_CREAT|O_EXCL, 0666) = 5\n",
    ),
    // A length.
    (
        "ftruncate(3, 7 <unfinished ...>",
        "<... ftruncate resumed>) = 0",
        "3 fstat(3, {st_mode=S_IFREG|0644, st_size=7, ...}) = 0\n",
        "",
    ),
    (
        "openat(AT_FDCWD, \"/w/f\", O_WRONLY|O_TRUNC <unfinished ...>",
        "<... openat resumed>) = 5",
        "3 pread64(3, \"\", 1000, 0) = 0\n",
        "",
    ),
    // A name that goes.
    (
        "unlink(\"/w/f\" <unfinished ...>",
        "<... unlink resumed>) = 0",
        "3 stat(\"/w/f\", 0x7f) = -1 ENOENT (No such file or directory)\n\
         3 openat(AT_FDCWD, \"/w/f\", O_RDWR|O_CREAT|O_EXCL, 0666) = 4\n",
        "",
    ),
    (
        "unlinkat(AT_FDCWD, \"/w/f\", 0 <unfinished ...>",
        "<... unlinkat resumed>) = 0",
        "3 unlink(\"/w/f\") = -1 ENOENT (No such file or directory)\n3 rmdir(\"/w\") = 0\n",
        "",
    ),
    (
        "rmdir(\"/w/d\" <unfinished ...>",
        "<... rmdir resumed>) = 0",
        "3 mkdir(\"/w/d/e\", 0777) = -1 ENOENT (No such file or directory)\n3 mkdir(\"/w/d\", 0777) = 0\n",
        "2 mkdir(\"/w/d\", 0777) = 0\n",
    ),
    // A name that comes.
    (
        "openat(AT_FDCWD, \"/w/new\", O_WRONLY|O_CREAT|O_EXCL, 0666 <unfinished ...>",
        "<... openat resumed>) = 5",
        "3 openat(AT_FDCWD, \"/w/new\", O_RDONLY) = 5\n",
        "",
    ),
    (
        "creat(\"/w/new\", 0666 <unfinished ...>",
        "<... creat resumed>) = 5",
        "3 openat(AT_FDCWD, \"/w/new\", O_RDWR|O_CREAT|O_EXCL, 0666) = -1 EEXIST (File exists)\n",
        "",
    ),
    (
        "mkdir(\"/w/d\", 0777 <unfinished ...>",
        "<... mkdir resumed>) = 0",
        "3 mkdir(\"/w/d\", 0777) = -1 EEXIST (File exists)\n3 mkdir(\"/w/d/e\", 0777) = 0\n",
        "",
    ),
    (
        "mkdir(\"/w/d\", 0777 <unfinished ...>",
        "<... mkdir resumed>) = 0",
        "3 openat(AT_FDCWD, \"/w\", O_RDONLY|O_DIRECTORY) = 4\n3 getdents64(4, 0x7f /* 4 entries */, 32768) = 100\n\
         3 getdents64(4, 0x7f /* 0 entries */, 32768) = 0\n",
        "",
    ),
    (
        "link(\"/w/f\", \"/w/g\" <unfinished ...>",
        "<... link resumed>) = 0",
        "3 stat(\"/w/g\", {st_mode=S_IFREG|0644, st_size=100, ...}) = 0\n3 unlink(\"/w/g\") = 0\n",
        "",
    ),
    (
        "symlink(\"f\", \"/w/s\" <unfinished ...>",
        "<... symlink resumed>) = 0",
        "3 readlink(\"/w/s\", \"f\", 99) = 1\n3 stat(\"/w/s\", {st_mode=S_IFREG|0644, st_size=100, ...}) = 0\n",
        "",
    ),
    (
        "rename(\"/w/f\", \"/w/g\" <unfinished ...>",
        "<... rename resumed>) = 0",
        "3 stat(\"/w/f\", 0x7f) = -1 ENOENT (No such file or directory)\n\
         3 stat(\"/w/g\", {st_mode=S_IFREG|0644, st_size=100, ...}) = 0\n",
        "",
    ),
];

#[test]
fn what_is_seen_of_a_call_before_it_returns_is_no_deviation() {
    for (begins, ends, sees, before) in SEEN {
        as_recorded(&beside(&format!("{before}2 {begins}\n{sees}2 {ends}\n")));
        // Whoever sees it has begun before it, and returns before it.
        let (one, rest) = sees.split_once('\n').expect("a line");
        let (head, answer) = one[2..].split_once(") = ").expect("a call");
        let name = head.split('(').next().expect("a name");
        as_recorded(&beside(&format!(
            "{before}3 {head} <unfinished ...>\n2 {begins}\n3 <... {name} resumed>) = {answer}\n{rest}2 {ends}\n"
        )));
    }
}

#[test]
fn what_is_seen_of_a_call_before_it_begins_is_a_deviation() {
    for (begins, ends, sees, before) in SEEN {
        let text = beside(&format!("{before}{sees}2 {begins}\n2 {ends}\n"));
        let replayed = told(&text);
        assert!(replayed.deviations > 0, "{text}");
    }
}

/// Runs what may deviate, and breaks no law.
fn told(text: &str) -> ReplayReport {
    let replayed = run("sf_buf", text).unwrap_or_else(|problem| panic!("{problem}: {text}"));
    assert!(replayed.laws.iter().all(|law| law.held), "{:?}: {text}", replayed.laws);
    replayed
}
