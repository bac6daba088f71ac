//! Recordings of strace, run again: those that are shipped, some that say what files must do, and some that are wrong.

use pageferry_lab::files::{FreedToName, KernelChoice, MachineChoice};
use pageferry_lab::record::Law;
use pageferry_lab::workloads::strace::{ReplayReport, replay, replay_planted};
use pageferry_lab::{Blame, LabError};
use pageferry_trace::strace::{Answer, Log, What};

const CP: &str = include_str!("../../recordings/cp.strace");
const TAR: &str = include_str!("../../recordings/tar.strace");
const GIT_STATUS: &str = include_str!("../../recordings/git-status.strace");

pub fn run(kernel: &str, text: &str) -> Result<ReplayReport, LabError> {
    run_on("xeon-mp", kernel, text)
}

fn run_on(machine: &str, kernel: &str, text: &str) -> Result<ReplayReport, LabError> {
    let machine = MachineChoice::find(machine).expect("a machine");
    let kernel = KernelChoice::find(kernel).expect("a kernel");
    replay(&machine, &kernel, "test.strace", text.as_bytes(), None)
}

/// Runs what must go as it was recorded.
pub fn as_recorded(text: &str) -> ReplayReport {
    let replayed = run("sf_buf", text).expect("it runs");
    let broken: Vec<_> = replayed.laws.iter().filter(|law| !law.held).collect();
    assert!(broken.is_empty(), "{broken:?}");
    assert_eq!(replayed.first_deviations, []);
    replayed
}

/// How many calls of a name returned a number of bytes, and how many bytes in all.
fn recorded(text: &str, name: &str) -> (u64, u64) {
    let log = Log::read(text.as_bytes());
    let of = |entry: &pageferry_trace::strace::Entry| match &entry.what {
        What::Call(call) if call.name == name => match call.answer {
            Answer::Value(value) => u64::try_from(value).ok(),
            _ => None,
        },
        _ => None,
    };
    log.entries.iter().filter_map(of).fold((0, 0), |(count, sum), bytes| (count + 1, sum + bytes))
}

#[test]
fn shipped_recordings_run_again_as_they_were_recorded() {
    for (name, text, processes) in [("tar", TAR, 3), ("cp", CP, 1), ("git status", GIT_STATUS, 1)] {
        assert!(text.len() < 200 << 10);
        for kernel in ["sf_buf", "original"] {
            let one = run(kernel, text).expect("it runs");
            let two = run(kernel, text).expect("it runs");
            assert_eq!(
                ReplayReport { host_ms: 0.0, ..one.clone() },
                ReplayReport { host_ms: 0.0, ..two },
                "{name}"
            );
            assert!(one.laws.iter().all(|law| law.held), "{name}: {:?}", one.laws);
            assert_eq!((one.processes, one.skipped, one.unfinished), (processes, 0, 0), "{name}");
            assert_eq!(one.first_deviations, [], "{name}");
            for call in ["read", "pread64", "write"] {
                let left_out: u64 = one
                    .not_modelled
                    .iter()
                    .filter(|(of, _)| of.split(' ').next() == Some(call))
                    .map(|(_, n)| n)
                    .sum();
                let (count, bytes) = recorded(text, call);
                let made = one.calls.get(call).copied().unwrap_or_default();
                assert_eq!(made.calls + left_out, count, "{name}: {call}");
                // All but what the first process was born with (standard output), and two reads of a file of /proc.
                assert!(left_out <= 3 && made.bytes <= bytes, "{name}: {call}: {left_out}, {}", made.bytes);
            }
            assert!(one.elapsed_us > 1000.0 && one.calls["openat"].recorded_us.is_some_and(|us| us > 0.0));
        }
        let invalidations = |kernel: &str| {
            let counters = run(kernel, text).expect("it runs").counters;
            counters["tlb_invalidations_local"] + counters["tlb_invalidations_remote_issued"]
        };
        assert!(invalidations("sf_buf") * 2 < invalidations("original"), "{name}");
    }
}

#[test]
fn a_copied_tree_is_copied_with_its_links() {
    let replayed = run("sf_buf", CP).expect("it runs");
    assert_eq!(
        (replayed.links, replayed.calls["symlinkat"].calls, replayed.calls["readlink"].calls),
        (3, 3, 3)
    );
    let (calls, bytes) = recorded(CP, "copy_file_range");
    let made = replayed.calls["copy_file_range"];
    assert_eq!((made.calls, made.bytes), (calls, bytes));
    // All that is left out is advice about caching, what the file system of the host could share, and its /proc.
    let files = [
        "openat",
        "newfstatat",
        "copy_file_range",
        "readlink",
        "symlinkat",
        "mkdir",
        "mkdirat",
        "getdents64",
    ];
    let left_out = |name: &String| {
        files.iter().any(|file| name.split(' ').next() == Some(file))
            && !name.ends_with("(a view of the kernel)")
    };
    assert_eq!(replayed.not_modelled.keys().filter(|name| left_out(name)).collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn files_do_what_they_did() {
    let replayed = as_recorded(
        "openat(AT_FDCWD, \"/a/b\", O_RDWR) = 3\n\
         fstat(3, {st_mode=S_IFREG|0644, st_size=10000, ...}) = 0\n\
         read(3, \"\"..., 4096) = 4096\n\
         dup(3) = 4\n\
         read(4, \"\"..., 4096) = 4096\n\
         close(3) = 0\n\
         read(4, \"\"..., 4096) = 1808\n\
         read(4, \"\", 4096) = 0\n\
         pread64(4, \"\"..., 100, 50) = 100\n\
         pwrite64(4, \"\"..., 100, 9950) = 100\n\
         lseek(4, -200, SEEK_END) = 9850\n\
         readv(4, [{iov_base=\"\"..., iov_len=100}, {iov_base=\"\", iov_len=400}], 2) = 200\n\
         ftruncate(4, 5000) = 0\n\
         unlink(\"/a/b\") = 0\n\
         stat(\"/a/b\", 0x1) = -1 ENOENT (No such file or directory)\n\
         pread64(4, \"\"..., 4096, 4000) = 1000\n\
         write(4, \"\"..., 3) = 3\n\
         fstat(4, {st_mode=S_IFREG|0644, st_size=10053, ...}) = 0\n\
         pread64(4, \"\"..., 100, 9000) = 100\n\
         fsync(4) = 0\n\
         close(4) = 0\n\
         open(\"/a/log\", O_WRONLY|O_APPEND) = 3\n\
         fstat(3, {st_mode=S_IFREG|0644, st_size=77, ...}) = 0\n\
         write(3, \"\"..., 23) = 23\n\
         lseek(3, 0, SEEK_SET) = 0\n\
         writev(3, [{iov_base=\"\"..., iov_len=11}, {iov_base=\"\", iov_len=9}], 2) = 20\n\
         fstat(3, {st_mode=S_IFREG|0644, st_size=120, ...}) = 0\n\
         close(3) = 0\n\
         open(\"/a/log\", O_WRONLY|O_CREAT|O_EXCL, 0644) = -1 EEXIST (File exists)\n\
         open(\"/a/lock\", O_RDWR|O_CREAT|O_EXCL, 0644) = 3\n\
         write(3, \"\"..., 5) = 5\n\
         close(3) = 0\n\
         rename(\"/a/lock\", \"/a/log\") = 0\n\
         stat(\"/a/log\", {st_mode=S_IFREG|0644, st_size=5, ...}) = 0\n\
         mkdir(\"/a/d\", 0755) = 0\n\
         mkdir(\"/a/d\", 0755) = -1 EEXIST (File exists)\n\
         link(\"/a/log\", \"/a/d/same\") = 0\n\
         rmdir(\"/a/d\") = -1 ENOTEMPTY (Directory not empty)\n\
         open(\"/a/log/x\", O_RDONLY) = -1 ENOTDIR (Not a directory)\n\
         open(\"/a/d\", O_WRONLY) = -1 EISDIR (Is a directory)\n\
         open(\"/a/d\", O_RDONLY|O_DIRECTORY) = 3\n\
         getdents64(3, 0x1 /* 3 entries */, 32768) = 72\n\
         getdents64(3, 0x1 /* 0 entries */, 32768) = 0\n\
         unlinkat(3, \"same\", 0) = 0\n\
         close(3) = 0\n\
         rmdir(\"/a/d\") = 0\n\
         open(\"/dev/null\", O_WRONLY) = 3\n\
         write(3, \"\"..., 50) = 50\n\
         exit_group(0) = ?\n\
         +++ exited with 0 +++\n",
    );
    assert_eq!(replayed.not_modelled.len(), 0, "{:?}", replayed.not_modelled);
    assert_eq!((replayed.files, replayed.directories), (2, 1));
    assert_eq!(replayed.calls["read"].bytes, 10_000);
    assert_eq!(replayed.calls.values().map(|cost| cost.calls).sum::<u64>(), 48);
}

#[test]
fn processes_pass_through_pipes_what_they_passed() {
    // 300,000 bytes through a pipe that holds 16 KB, by two processes; a file that the child makes and the parent
    // reads.
    let mut text =
        "5 pipe([3, 4]) = 0\n5 fork( <unfinished ...>\n6 close(3) = 0\n5 <... fork resumed>) = 6\n"
            .to_owned();
    text += "6 open(\"/made\", O_WRONLY|O_CREAT|O_TRUNC, 0644) = 3\n6 write(3, \"\"..., 70) = 70\n6 close(3) = 0\n";
    text += "5 close(4) = 0\n5 open(\"/made\", O_RDONLY) = 4\n5 read(4, \"\"..., 100) = 70\n5 close(4) = 0\n";
    text += "6 write(4, \"\"..., 300000 <unfinished ...>\n";
    for _ in 0..6 {
        text += "5 read(3, \"\"..., 65536) = 50000\n";
    }
    text += "6 <... write resumed>) = 300000\n\
             5 read(3,  <unfinished ...>\n\
             6 exit_group(0) = ?\n\
             6 +++ exited with 0 +++\n";
    text += "5 <... read resumed>\"\", 65536) = 0\n\
             5 wait4(-1, [{WIFEXITED(s)}], 0, NULL) = 6\n\
             5 +++ exited with 0 +++\n";
    let replayed = as_recorded(&text);
    assert_eq!((replayed.processes, replayed.calls["read"].bytes), (2, 300_070));
    assert_eq!(replayed.not_modelled.len(), 0, "{:?}", replayed.not_modelled);
    // On one CPU, too, where nothing happens at the same time.
    let alone = run_on("xeon-up", "original", &text).expect("it runs");
    assert!(alone.deviations == 0 && alone.laws.iter().all(|law| law.held), "{:?}", alone.laws);
    // Nobody reads all that is written: what is left would be waited for for ever.
    let unread = text.replacen("5 read(3, \"\"..., 65536) = 50000\n", "", 3);
    let unread = run("sf_buf", &unread).expect("it runs");
    assert!(unread.deviations == 1 && unread.laws.iter().all(|law| law.held), "{:?}", unread.laws);
    assert!(unread.first_deviations[0].what.contains("nobody in the recording reads 150000 of the bytes"));
    // Nobody wrote what is read: told, and nobody waits for ever.
    let lost = text.replace("6 write(4", "6 sendto(4").replace("... write resumed", "... sendto resumed");
    let lost = run("sf_buf", &lost).expect("it runs");
    assert!(lost.deviations >= 6 && lost.laws.iter().all(|law| law.held), "{:?}", lost.laws);
    assert!(lost.first_deviations[0].what.contains("nobody in the recording wrote"));
    // Or only some of it.
    let less = text.replace("300000", "120000");
    let less = run("sf_buf", &less).expect("it runs");
    assert!(less.deviations == 4 && less.laws.iter().all(|law| law.held), "{:?}", less.laws);
    assert!(
        less.first_deviations[0].what.contains("wrote 30000 of the bytes"),
        "{:?}",
        less.first_deviations
    );
}

#[test]
fn a_wrong_length_is_told() {
    let sound = "open(\"/f\", O_RDONLY) = 3\n\
                 read(3, \"\"..., 512) = 512\n\
                 read(3, \"\"..., 512) = 512\n\
                 read(3, \"\"..., 512) = 100\n\
                 read(3, \"\", 512) = 0\n\
                 close(3) = 0\n";
    as_recorded(sound);
    let planted = sound.replacen("= 512", "= 500", 1);
    let replayed = run("sf_buf", &planted).expect("it runs");
    assert_eq!(replayed.deviations, 1);
    let told = &replayed.first_deviations[0];
    assert_eq!((told.line, told.call.as_str()), (2, "read"));
    assert_eq!(told.what, "bytes read: 500 recorded, 512 here");
    assert!(replayed.laws.iter().all(|law| law.held));
    // In a real one: the first byte of the answer of a read in the middle of a file.
    let at = TAR.find("10240").and_then(|_| TAR.find(" 4096) = 4096")).map(|at| at + " 4096) = ".len());
    if let Some(at) = at {
        let mut text = TAR.to_owned();
        text.replace_range(at..at + 4, "3096");
        assert!(run("sf_buf", &text).expect("it runs").deviations > 1);
    }
}

#[test]
fn files_of_the_host_are_taken_for_what_was_there() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(folder.path().join("a")).expect("made");
    std::fs::write(folder.path().join("a/f"), vec![7; 3000]).expect("written");
    let machine = MachineChoice::find("xeon-up").expect("a machine");
    let kernel = KernelChoice::find("sf_buf").expect("a kernel");
    let text = "open(\"/a/f\", O_RDONLY) = 3\nread(3, \"\"..., 4096) = 3000\nread(3, \"\", 4096) = 0\n";
    let replayed = replay(&machine, &kernel, "x", text.as_bytes(), Some(folder.path())).expect("it runs");
    assert!(replayed.deviations == 0 && replayed.laws.iter().all(|law| law.held));
}

#[test]
fn what_is_no_recording_is_refused() {
    for (text, expected) in [
        ("", "no calls"),
        ("[package]\nname = \"x\"\n", "line 1: expected a call"),
        ("close(3) = 0\nx\ny\nz\n", "3 of its lines are not, 1 are; line 2"),
    ] {
        let error = run("sf_buf", text).expect_err("refused");
        assert_eq!(error.blame(), Blame::Input);
        let said = error.to_string();
        assert!(said.contains("test.strace") && said.contains(expected), "{said}");
    }
    let large = "open(\"/f\", O_RDONLY) = 3\npread64(3, \"\"..., 9, 400000000) = 9\n";
    let said = run("sf_buf", large).expect_err("refused").to_string();
    assert!(said.contains("of files are read, expected at most"), "{said}");
}

/// Some of what is wrong with a kernel is seen by what programs that were recorded do: by their bytes, or by a stale
/// translation.
#[test]
fn a_kernel_with_a_defect_does_not_do_what_was_recorded() {
    use pageferry_vm::VmDefect;
    let (machine, kernel) = (MachineChoice::find("xeon-mp"), KernelChoice::find("sf_buf"));
    let (machine, mut kernel) = (machine.expect("a machine"), kernel.expect("a kernel"));
    // Memory that was never used is clear on a modelled machine: bytes that are left in a page are those of another.
    kernel.file.frames.as_mut().expect("it says how frames are taken").clear_from.value = FreedToName::Head;
    let seen = [
        (VmDefect::ZeroForgotten, "every answer and every byte is the plain model's"),
        (VmDefect::UnmapKeepsMappings, "destroyed with mappings in it"),
        (VmDefect::UnmapWithoutFlush, "stale translation"),
        (VmDefect::WireLeaked, "nothing is held"),
    ];
    for (defect, how) in seen {
        let run = replay_planted(&machine, &kernel, "test.strace", GIT_STATUS.as_bytes(), None, Some(defect))
            .expect("a broken law is no error");
        let broken = Law::broken(&run.laws);
        assert!(broken.iter().any(|law| law.contains(how)), "{defect:?}: {broken:?}");
    }
}

#[test]
fn symbolic_links_lead_where_they_did() {
    let replayed = as_recorded(
        "stat(\"/a/way/file\", {st_mode=S_IFREG|0644, st_size=5, ...}) = 0\n\
         lstat(\"/a/way\", {st_mode=S_IFLNK|0777, st_size=9, ...}) = 0\n\
         readlink(\"/a/way\", \"../b/deep\", 4096) = 9\n\
         openat(AT_FDCWD, \"/a/way/file\", O_RDONLY) = 3\n\
         read(3, \"\"..., 100) = 5\n\
         close(3) = 0\n\
         stat(\"/b/deep/file\", {st_mode=S_IFREG|0644, st_size=5, ...}) = 0\n\
         lstat(\"/a/gone\", {st_mode=S_IFLNK|0777, st_size=7, ...}) = 0\n\
         stat(\"/a/gone\", 0x1) = -1 ENOENT (No such file or directory)\n\
         openat(AT_FDCWD, \"/a/closed\", O_RDONLY|O_NOFOLLOW) = -1 ELOOP (Too many levels of symbolic links)\n\
         readlink(\"/b/deep/file\", 0x1, 4096) = -1 EINVAL (Invalid argument)\n\
         symlink(\"/b/deep/file\", \"/a/new\") = 0\n\
         symlink(\"x\", \"/a/new\") = -1 EEXIST (File exists)\n\
         openat(AT_FDCWD, \"/a\", O_RDONLY|O_DIRECTORY) = 4\n\
         newfstatat(4, \"new\", {st_mode=S_IFLNK|0777, st_size=12, ...}, AT_SYMLINK_NOFOLLOW) = 0\n\
         readlinkat(4, \"new\", \"/b/deep/file\", 4096) = 12\n\
         newfstatat(4, \"new\", {st_mode=S_IFREG|0644, st_size=5, ...}, 0) = 0\n\
         openat(4, \"new\", O_WRONLY|O_APPEND) = 5\n\
         write(5, \"abc\", 3) = 3\n\
         stat(\"/a/way/file\", {st_mode=S_IFREG|0644, st_size=8, ...}) = 0\n\
         symlinkat(\"made\", 4, \"later\") = 0\n\
         openat(4, \"later\", O_WRONLY|O_CREAT, 0644) = 6\n\
         unlinkat(4, \"later\", 0) = 0\n\
         stat(\"/a/made\", {st_mode=S_IFREG|0644, st_size=0, ...}) = 0\n\
         chdir(\"/a/way\") = 0\n\
         stat(\"../../a/made\", {st_mode=S_IFREG|0644, st_size=0, ...}) = 0\n\
         openat(AT_FDCWD, \"file\", O_RDONLY|O_PATH|O_DIRECTORY) = -1 ENOTDIR (Not a directory)\n\
         openat(AT_FDCWD, \"/a/way\", O_RDONLY|O_PATH|O_DIRECTORY) = 7\n\
         newfstatat(7, \"file\", {st_mode=S_IFREG|0644, st_size=8, ...}, 0) = 0\n",
    );
    assert!(replayed.not_modelled.is_empty(), "{:?}", replayed.not_modelled);
    assert_eq!(replayed.links, 3);
    let calls = ["readlink", "readlinkat", "symlink", "symlinkat"].map(|name| replayed.calls[name].calls);
    assert_eq!(calls, [2, 1, 2, 1]);
}

#[test]
fn bytes_are_copied_from_file_to_file_and_into_a_pipe() {
    let replayed = as_recorded(
        "1 openat(AT_FDCWD, \"/from\", O_RDONLY) = 3\n\
         1 openat(AT_FDCWD, \"/to\", O_RDWR|O_CREAT|O_TRUNC, 0644) = 4\n\
         1 copy_file_range(3, NULL, 4, NULL, 9223372035781033984, 0) = 200000\n\
         1 copy_file_range(3, NULL, 4, NULL, 9223372035781033984, 0) = 0\n\
         1 fstat(4, {st_mode=S_IFREG|0644, st_size=200000, ...}) = 0\n\
         1 sendfile(4, 3, [100] => [150], 50) = 50\n\
         1 copy_file_range(3, [7], 4, [3], 1000, 0) = 1000\n\
         1 lseek(3, 0, SEEK_SET) = 0\n\
         1 sendfile(4, 3, NULL, 10) = 10\n\
         1 read(3, \"\"..., 10) = 10\n\
         1 lseek(4, 0, SEEK_CUR) = 200060\n\
         1 pread64(4, \"\"..., 300000, 0) = 200060\n\
         1 pipe2([5, 6], 0) = 0\n\
         1 fstat(5, {st_mode=S_IFIFO|0600, st_size=0, ...}) = 0\n\
         1 fork() = 2\n\
         1 close(5) = 0\n\
         1 splice(3, [0], 6, NULL, 100000, 0) = 65536\n\
         1 splice(3, [65536], 6, NULL, 100000, 0) = 34464\n\
         1 close(6) = 0\n\
         2 close(6) = 0\n\
         2 read(5, \"\"..., 65536) = 65536\n\
         2 read(5, \"\"..., 65536) = 34464\n\
         2 read(5, \"\", 65536) = 0\n\
         1 splice(5, NULL, 4, NULL, 10, 0) = -1 EBADF (Bad file descriptor)\n",
    );
    assert_eq!(replayed.calls["copy_file_range"].bytes, 201_000);
    assert_eq!((replayed.calls["sendfile"].bytes, replayed.calls["splice"].bytes), (60, 100_000));
    assert_eq!(replayed.not_modelled.keys().collect::<Vec<_>>(), ["splice (EBADF)"]);
}

/// A shell saves standard output, which nothing in the recording has opened, and takes it back: what is written then is
/// not the file's.
#[test]
fn a_descriptor_that_is_taken_back_is_not_the_file_any_more() {
    let replayed = as_recorded(
        "openat(AT_FDCWD, \"/out\", O_WRONLY|O_CREAT|O_TRUNC, 0666) = 3\n\
         fcntl(1, F_DUPFD, 10) = 11\n\
         dup2(3, 1) = 1\n\
         close(3) = 0\n\
         write(1, \"abcd\", 4) = 4\n\
         dup2(11, 1) = 1\n\
         write(1, \"elsewhere\", 9) = 9\n\
         stat(\"/out\", {st_mode=S_IFREG|0644, st_size=4, ...}) = 0\n",
    );
    assert_eq!(replayed.not_modelled["write (not opened in the recording)"], 1);
}

#[test]
fn a_directory_that_is_listed_before_its_names_are_used_has_as_many() {
    as_recorded(
        "openat(AT_FDCWD, \"/d\", O_RDONLY|O_DIRECTORY) = 3\n\
         getdents64(3, 0x1 /* 6 entries */, 32768) = 200\n\
         getdents64(3, 0x1 /* 0 entries */, 32768) = 0\n\
         newfstatat(3, \"one\", {st_mode=S_IFREG|0644, st_size=1, ...}, 0) = 0\n\
         newfstatat(3, \"two\", {st_mode=S_IFREG|0644, st_size=1, ...}, 0) = 0\n\
         lseek(3, 0, SEEK_SET) = 0\n\
         getdents64(3, 0x1 /* 6 entries */, 32768) = 200\n\
         getdents64(3, 0x1 /* 0 entries */, 32768) = 0\n",
    );
}

/// What the recording says and what the plain model has may contradict each other; the kernel does what the model says
/// all the same.
#[test]
fn what_contradicts_itself_breaks_no_law() {
    for text in [
        // Not made, though it could be.
        "open(\"/a\", O_RDWR|O_CREAT, 0644) = -1 ENOENT (No such file or directory)\n\
         mkdir(\"/a\", 0755) = 0\n",
        "unlink(\"/a\") = 0\n\
         open(\"/a\", O_RDWR|O_CREAT|O_EXCL, 0644) = -1 EEXIST (File exists)\n\
         stat(\"/a\", 0x1) = -1 ENOENT (No such file or directory)\n",
        // From a file to itself, and on.
        "open(\"/a\", O_RDWR) = 3\n\
         sendfile(3, 3, [0] => [1463], 1463) = 1463\n\
         sendfile(3, 3, NULL, 2913) = 521\n\
         read(3, \"\"..., 7000) = 7000\n",
        // Not opened for that.
        "open(\"/a\", O_RDONLY) = 3\n\
         open(\"/b\", O_WRONLY|O_CREAT, 0644) = 4\n\
         write(3, \"x\", 1) = 1\n\
         read(4, \"x\", 1) = 1\n\
         ftruncate(3, 5) = 0\n\
         mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, 4, 0) = 0x7f0000000000\n\
         copy_file_range(3, NULL, 3, NULL, 10, 0) = 10\n\
         copy_file_range(4, NULL, 4, NULL, 10, 0) = 10\n",
        // It ends before its child does, which has a file open and reads from a pipe that is never closed.
        "1 pipe2([3, 4], 0) = 0\n\
         1 fork() = 2\n\
         2 openat(AT_FDCWD, \"/a\", O_RDONLY) = 5\n\
         1 write(4, \"abc\", 3) = 3\n\
         2 read(3, \"abc\", 9) = 3\n\
         2 read(5, \"\"..., 100000) = 100000\n\
         1 close(3) = 0\n",
        // From a pipe that only it writes to, before it does.
        "pipe2([3, 4], 0) = 0\n\
         read(3, \"\"..., 784) = 784\n\
         pread64(3, \"\"..., 784, 64) = 784\n\
         pwrite64(4, \"\"..., 784, 64) = 784\n\
         write(4, \"\"..., 10240) = 10240\n",
        // Below a link that leads elsewhere there is nothing of its own.
        "lstat(\"/c/d\", {st_mode=S_IFLNK|0777, st_size=1, ...}) = 0\n\
         stat(\"/c/f\", {st_mode=S_IFREG|0644, st_size=1, ...}) = 0\n\
         rmdir(\"/c/g\") = -1 ENOTEMPTY (Directory not empty)\n\
         lstat(\"/c\", {st_mode=S_IFLNK|0777, st_size=1, ...}) = 0\n\
         readlink(\"/c\", \"e\", 99) = 1\n",
    ] {
        let replayed = run("sf_buf", text).unwrap_or_else(|e| panic!("{text}: {e}"));
        let broken: Vec<_> = replayed.laws.iter().filter(|law| !law.held).collect();
        assert!(broken.is_empty(), "{text}: {broken:?}");
    }
}

/// Runs what must go as it was recorded, with nothing left out.
fn wholly_as_recorded(text: &str) -> ReplayReport {
    let replayed = as_recorded(text);
    assert_eq!((replayed.skipped, replayed.unfinished), (0, 0), "{:?}", replayed.first_skipped);
    assert_eq!(replayed.not_modelled.keys().collect::<Vec<_>>(), Vec::<&String>::new());
    replayed
}

/// A reader of a pipe that waits for its end, and a process that must have closed it, in this way.
fn closed_by(close: &str) -> String {
    format!(
        "10 pipe2([3, 4], 0) = 0\n10 pipe2([5, 6], 0) = 0\n10 fork() = 11\n{close}10 fork() = 12\n10 close(4) = 0\n\
         12 close(4) = 0\n12 read(3, \"\", 100) = 0\n12 write(6, \"done\", 4) = 4\n11 read(5, \"done\", 4) = 4\n\
         11 +++ exited with 0 +++\n12 +++ exited with 0 +++\n10 wait4(-1, NULL, 0, NULL) = 11\n\
         10 wait4(-1, NULL, 0, NULL) = 12\n10 +++ exited with 0 +++\n"
    )
}

#[test]
fn a_close_by_any_call_is_one() {
    for close in [
        "11 close(4) = 0\n",
        "11 close(4) = -1 EINTR (Interrupted system call)\n",
        "11 close_range(4, 4, 0) = 0\n",
        "11 close_range(6, 4294967295, 0) = 0\n11 close_range(4, 4, CLOSE_RANGE_UNSHARE) = 0\n",
        "11 close_range(4, 4, CLOSE_RANGE_CLOEXEC) = 0\n11 execve(\"/bin/x\", [\"x\"], 0x7f /* 3 vars */) = 0\n",
        "11 ioctl(4, FIOCLEX) = 0\n11 execve(\"/bin/x\", [\"x\"], 0x7f /* 3 vars */) = 0\n",
        "11 fcntl(4, F_SETFD, FD_CLOEXEC) = 0\n11 execve(\"/bin/x\", [\"x\"], 0x7f /* 3 vars */) = 0\n",
        "11 fcntl(4, 0x2 /* F_SETFD */, 0x1 /* FD_CLOEXEC */) = 0\n11 execve(\"/x\", [\"x\"], 0x7f /* 3 vars */) = 0\n",
        "11 dup2(3, 4) = 4\n",
    ] {
        wholly_as_recorded(&closed_by(close));
    }
    // A thread execs, and goes on as its process.
    let replayed = as_recorded(&closed_by(
        "11 fcntl(4, F_SETFD, FD_CLOEXEC) = 0\n\
         11 clone3({flags=CLONE_VM|CLONE_FILES|CLONE_THREAD, exit_signal=0, stack=0x7f, stack_size=0x7f}, 88) = 21\n\
         21 execve(\"/bin/x\", [\"x\"], 0x7ffe /* 3 vars */ <pid changed to 11 ...>\n\
         11 +++ superseded by execve in pid 21 +++\n11 <... execve resumed>) = 0\n",
    ));
    assert_eq!((replayed.skipped, replayed.unfinished), (0, 0));
    // A close that no line shows is made up for, and told.
    let replayed = run("sf_buf", &closed_by("")).expect("it runs");
    assert!(replayed.laws.iter().all(|law| law.held), "{:?}", replayed.laws);
    assert_eq!(replayed.first_deviations.len(), 1);
    assert!(replayed.first_deviations[0].what.contains("4 of process 11"), "{:?}", replayed.first_deviations);
}

#[test]
fn an_end_that_is_seen_before_the_exit_of_the_last_writer_is_one() {
    wholly_as_recorded(
        "10 pipe2([3, 4], 0) = 0\n10 fork() = 11\n10 close(4) = 0\n11 write(4, \"x\", 1) = 1\n\
         11 exit_group(0) = ?\n10 read(3, \"x\", 100) = 1\n10 read(3, \"\", 100) = 0\n\
         11 +++ exited with 0 +++\n10 wait4(-1, NULL, 0, NULL) = 11\n10 +++ exited with 0 +++\n",
    );
}

#[test]
fn an_end_that_is_seen_before_the_call_that_closes_it_returns_is_one() {
    for (begins, ends, is_last) in [
        ("close(4 <unfinished ...>", "<... close resumed>) = 0", false),
        ("close_range(4, 9, 0 <unfinished ...>", "<... close_range resumed>) = 0", false),
        ("dup2(5, 4 <unfinished ...>", "<... dup2 resumed>) = 4", false),
        (
            "execve(\"/bin/x\", [\"x\"], 0x7ffe /* 3 vars */ <unfinished ...>",
            "<... execve resumed>) = 0",
            true,
        ),
    ] {
        let at_exec = if is_last { "11 fcntl(4, F_SETFD, FD_CLOEXEC) = 0\n" } else { "" };
        wholly_as_recorded(&format!(
            "10 pipe2([3, 4], 0) = 0\n10 pipe2([5, 6], 0) = 0\n10 fork() = 11\n10 close(4) = 0\n{at_exec}\
             10 read(3,  <unfinished ...>\n11 {begins}\n10 <... read resumed>\"\", 100) = 0\n11 {ends}\n\
             11 mkdir(\"d\", 0777) = 0\n11 +++ exited with 0 +++\n10 wait4(-1, NULL, 0, NULL) = 11\n\
             10 openat(AT_FDCWD, \"a\", O_RDONLY) = 4\n10 close(4) = 0\n"
        ));
    }
    // A call that begins after the end was seen has closed nothing before.
    let replayed = run(
        "sf_buf",
        "10 pipe2([3, 4], 0) = 0\n10 fork() = 11\n10 close(4) = 0\n10 read(3, \"\", 100) = 0\n11 close(4) = 0\n\
         11 +++ exited with 0 +++\n10 +++ exited with 0 +++\n",
    );
    assert_eq!(replayed.expect("it runs").first_deviations.len(), 1);
}

#[test]
fn what_nobody_reads_stays_in_a_pipe() {
    wholly_as_recorded(
        "10 pipe2([3, 4], 0) = 0\n10 fork() = 11\n11 write(4, \"done\\n\", 5) = 5\n10 read(3, \"done\", 4) = 4\n\
         11 +++ exited with 0 +++\n10 wait4(-1, NULL, 0, NULL) = 11\n10 +++ exited with 0 +++\n",
    );
    // More than a pipe is sure to take would be waited for: that is told.
    let text = "10 pipe2([3, 4], 0) = 0\n10 write(4, \"x\"..., 40000) = 40000\n10 read(3, \"x\"..., 4) = 4\n";
    let replayed = run("sf_buf", text).expect("it runs");
    assert!(replayed.laws.iter().all(|law| law.held), "{:?}", replayed.laws);
    assert_eq!(replayed.first_deviations.len(), 1);
}

#[test]
fn whoever_only_holds_an_end_to_read_from_closes_it_after_the_write() {
    // The second child writes while the first process alone has the other end, which it does not read from.
    wholly_as_recorded(
        "10 pipe2([5, 6], 0) = 0\n10 fork() = 12\n12 close(5) = 0\n10 mkdir(\"a\", 0777) = 0\n\
         12 stat(\"a\", {st_mode=S_IFDIR|0755, st_size=0, ...}) = 0\n12 write(6, \"done\", 4) = 4\n\
         12 +++ exited with 0 +++\n10 close(5) = 0\n10 +++ exited with 0 +++\n",
    );
    wholly_as_recorded(
        "10 pipe2([5, 6], 0) = 0\n10 fork() = 12\n12 close(5) = 0\n12 mkdir(\"a\", 0777) = 0\n\
         12 write(6, \"done\", 4) = 4\n10 +++ exited with 0 +++\n12 +++ exited with 0 +++\n",
    );
}

#[test]
fn a_child_that_stops_has_not_ended() {
    let text = |wait: &str| {
        format!(
            "10 pipe2([3, 4], 0) = 0\n10 fork() = 11\n11 read(3,  <unfinished ...>\n11 --- stopped by SIGTSTP ---\n\
             {wait}10 write(4, \"x\", 1) = 1\n11 <... read resumed>\"x\", 1) = 1\n11 +++ exited with 0 +++\n\
             10 wait4(-1, [{{WIFEXITED(s) && WEXITSTATUS(s) == 0}}], 0, NULL) = 11\n10 +++ exited with 0 +++\n"
        )
    };
    for wait in [
        "",
        "10 wait4(-1, [{WIFSTOPPED(s) && WSTOPSIG(s) == SIGTSTP}], WUNTRACED, NULL) = 11\n",
        "10 wait4(-1, [{WIFCONTINUED(s)}], WCONTINUED, NULL) = 11\n",
        "10 wait4(-1, NULL, WUNTRACED, NULL) = 11\n",
        "10 wait4(-1, NULL, WNOHANG, NULL) = 0\n",
        "10 waitid(P_PID, 11, {si_signo=SIGCHLD, si_code=CLD_STOPPED, si_pid=11, si_uid=0, si_status=SIGTSTP, \
         si_utime=0, si_stime=0}, WSTOPPED, NULL) = 0\n",
        "10 waitid(P_ALL, 0, {}, WEXITED|WNOHANG, NULL) = 0\n",
        "10 waitid(P_PID, 11, {}, WEXITED|WNOHANG, NULL) = 0\n",
    ] {
        let replayed = wholly_as_recorded(&text(wait));
        assert_eq!(replayed.processes, 2);
    }
}

#[test]
fn processes_are_known_by_their_numbers_however_those_are_written() {
    let named = "100<cat> openat(AT_FDCWD</tmp>, \"a\", O_RDONLY) = 3</tmp/a>\n\
                 100<tmux: server> fork() = 101<x>\n101<x> read(3</tmp/a>, \"hello\", 100) = 5\n\
                 101<x> +++ exited with 0 +++\n100<cat> wait4(-1, NULL, 0, NULL) = 101<x>\n\
                 100<cat> +++ exited with 0 +++\n";
    let translated = "100 openat(AT_FDCWD, \"a\", O_RDONLY) = 3\n\
                      100 clone(child_stack=NULL, flags=SIGCHLD) = 2 /* 101 in strace's PID NS */\n\
                      101 read(3, \"hello\", 100) = 5\n101 +++ exited with 0 +++\n\
                      100 waitid(P_ALL, 0, {si_signo=SIGCHLD, si_code=CLD_EXITED, \
                      si_pid=2 /* 101 in strace's PID NS */, si_uid=0, si_status=0}, WEXITED, NULL) = 0\n\
                      100 +++ exited with 0 +++\n";
    let timed = "100 1700000000.123456 openat(AT_FDCWD, \"a\", O_RDONLY) = 3\n100 1700000000.2 fork() = 101\n\
                 101 1700000001 read(3, \"hello\", 100) = 5\n101 1700000002 +++ exited with 0 +++\n\
                 100 1700000003 wait4(-1, NULL, 0, NULL) = 101\n100 1700000004 +++ exited with 0 +++\n";
    for text in [named, translated, timed] {
        assert_eq!(wholly_as_recorded(text).processes, 2, "{text}");
    }
    let alone = wholly_as_recorded(
        "1700000000 openat(AT_FDCWD, \"a\", O_RDONLY) = 3\n1700000001 read(3, \"x\", 9) = 1\n",
    );
    assert_eq!(alone.processes, 1);
    let again = "10 fork() = 11\n11 openat(AT_FDCWD, \"a\", O_RDONLY) = 3\n11 read(3, \"hello\", 100) = 5\n\
                 11 +++ exited with 0 +++\n10 wait4(-1, NULL, 0, NULL) = 11\n";
    let again = format!(
        "{again}10 openat(AT_FDCWD, \"b\", O_RDONLY) = 3\n{}",
        again.replace("11 openat(AT_FDCWD, \"a\", O_RDONLY) = 3\n", "")
    );
    assert_eq!(wholly_as_recorded(&again).processes, 3);
}

#[test]
fn more_processes_than_the_kernel_has_at_a_time_run_one_after_the_other() {
    let mut text = String::new();
    for pid in 11..611 {
        text += &format!(
            "10 fork() = {pid}\n{pid} openat(AT_FDCWD, \"{pid}\", O_WRONLY|O_CREAT, 0666) = 3\n\
             {pid} write(3, \"x\", 1) = 1\n{pid} +++ exited with 0 +++\n10 wait4(-1, NULL, 0, NULL) = {pid}\n"
        );
    }
    assert_eq!(wholly_as_recorded(&text).processes, 601);
    let many: String = (11..300).map(|pid| format!("10 fork() = {pid}\n")).collect();
    let error = run("sf_buf", &many).expect_err("too many at a time");
    assert!(error.to_string().contains("290 processes at a time"), "{error}");
}

#[test]
fn a_process_that_shares_descriptors_is_one_with_its_parent_until_it_execs() {
    let replayed = as_recorded(
        "10 clone(child_stack=0x7f0000, flags=CLONE_VM|CLONE_FS|CLONE_FILES|SIGCHLD) = 11\n\
         11 openat(AT_FDCWD, \"a\", O_RDONLY|O_CLOEXEC) = 3\n10 read(3, \"hello\", 5) = 5\n\
         11 execve(\"/bin/x\", [\"x\"], 0x7f /* 3 vars */) = 0\n11 openat(AT_FDCWD, \"b\", O_RDONLY) = 3\n\
         10 read(3, \"\", 100) = 0\n11 read(3, \"bytes\", 100) = 5\n11 +++ exited with 0 +++\n\
         10 wait4(-1, NULL, __WCLONE, NULL) = 11\n10 close(3) = 0\n10 +++ exited with 0 +++\n",
    );
    assert_eq!(replayed.processes, 2);
    assert!(!replayed.not_modelled.keys().any(|what| what.contains("opened")), "{:?}", replayed.not_modelled);
}

#[test]
fn paths_lead_where_they_do_on_linux() {
    // A relative path of chdir is looked up from where the process was.
    let replayed = wholly_as_recorded(
        "10 mkdir(\"d\", 0777) = 0\n10 chdir(\"d\") = 0\n10 openat(AT_FDCWD, \"f\", O_WRONLY|O_CREAT, 0666) = 3\n\
         10 write(3, \"x\", 1) = 1\n10 stat(\"../d/f\", {st_mode=S_IFREG|0644, st_size=1, ...}) = 0\n",
    );
    assert_eq!(replayed.directories, 1, "the one where it began");
    // An empty path is none, and a slash at the end says nothing of what is before the name.
    as_recorded(
        "10 openat(AT_FDCWD, \"\", O_RDONLY) = -1 ENOENT (No such file or directory)\n\
         10 stat(\"\", 0x7f) = -1 ENOENT (No such file or directory)\n\
         10 openat(AT_FDCWD, \"a/\", O_RDONLY) = -1 ENOTDIR (Not a directory)\n\
         10 unlink(\"a/\") = -1 ENOTDIR (Not a directory)\n\
         10 openat(AT_FDCWD, \"new/\", O_WRONLY|O_CREAT, 0666) = -1 EISDIR (Is a directory)\n\
         10 symlink(\"x\", \"new/\") = -1 ENOENT (No such file or directory)\n\
         10 openat(AT_FDCWD, \"new\", O_WRONLY|O_CREAT|O_EXCL, 0666) = 3\n10 close(3) = 0\n\
         10 mkdir(\"d/\", 0777) = 0\n10 openat(AT_FDCWD, \"a\", O_RDONLY) = 3\n10 read(3, \"hello\", 100) = 5\n",
    );
    // Names that are no text stay as many as they are.
    wholly_as_recorded(
        "10 openat(AT_FDCWD, \"\\341\\210\\264\\351\", O_WRONLY|O_CREAT, 0666) = 3\n10 mkdir(\"x\\377\", 0777) = 0\n\
         10 mkdir(\"x\\303\\277\", 0777) = 0\n10 mkdir(\"x\\364\\217\\277\\277\", 0777) = 0\n\
         10 mkdir(\"x\\364\\217\\277\\276\", 0777) = 0\n10 mkdir(\"x\\376\", 0777) = 0\n\
         10 mkdir(\"x\\303\\276\", 0777) = 0\n",
    );
    // What has the new name already stays.
    wholly_as_recorded(
        "10 openat(AT_FDCWD, \"a\", O_WRONLY|O_CREAT, 0666) = 3\n10 write(3, \"abc\", 3) = 3\n\
         10 renameat2(AT_FDCWD, \"a\", AT_FDCWD, \"b\", RENAME_NOREPLACE) = -1 EEXIST (File exists)\n\
         10 stat(\"a\", {st_mode=S_IFREG|0644, st_size=3, ...}) = 0\n\
         10 renameat2(AT_FDCWD, \"a\", AT_FDCWD, \"c\", RENAME_NOREPLACE) = 0\n\
         10 stat(\"c\", {st_mode=S_IFREG|0644, st_size=3, ...}) = 0\n",
    );
}

#[test]
fn what_is_on_no_disk_is_left_out() {
    // Each process finds something else there, or another length.
    let replayed = as_recorded(
        "10 openat(AT_FDCWD, \"/proc/self/maps\", O_RDONLY) = 3\n\
         10 fstat(3, {st_mode=S_IFREG|0444, st_size=0, ...}) = 0\n\
         10 read(3, \"00\"..., 4096) = 4062\n10 close(3) = 0\n10 readlink(\"/proc/self/exe\", \"/bin/a\", 99) = 6\n\
         10 stat(\"/sys/devices\", {st_mode=S_IFDIR|0755, st_size=0, ...}) = 0\n10 chdir(\"/proc/7\") = 0\n\
         10 openat(AT_FDCWD, \"maps\", O_RDONLY) = 3\n10 read(3, \"00\"..., 4096) = 30\n10 close(3) = 0\n\
         11 openat(AT_FDCWD, \"/proc/self/maps\", O_RDONLY) = 3\n11 read(3, \"00\"..., 4096) = 3000\n\
         11 readlink(\"/proc/self/exe\", \"/bin/other\", 99) = 10\n\
         11 openat(AT_FDCWD, \"/procs\", O_RDONLY) = 4\n11 read(4, \"own\", 100) = 3\n",
    );
    assert_eq!((replayed.files, replayed.links), (1, 0));
}

#[test]
fn flags_that_are_numbers_are_flags() {
    for (directory, read, write, end) in [
        (
            "-100 /* AT_FDCWD */",
            "0 /* O_RDONLY */",
            "0x241 /* O_WRONLY|O_CREAT|O_TRUNC */",
            "0x2 /* SEEK_END */",
        ),
        ("-100", "0", "0x241", "0x2"),
        ("AT_FDCWD", "O_RDONLY", "O_WRONLY|O_CREAT|O_TRUNC", "SEEK_END"),
    ] {
        wholly_as_recorded(&format!(
            "10 openat({directory}, \"a\", {read}) = 3\n10 read(3, \"hello\", 100) = 5\n10 lseek(3, 0, {end}) = 5\n\
             10 openat({directory}, \"b\", {write}, 0666) = 4\n10 write(4, \"x\", 1) = 1\n10 close(3) = 0\n"
        ));
    }
    wholly_as_recorded(
        "10 openat(AT_FDCWD, \"a\", O_RDONLY) = 3\n10 read(3, \"0123456789\", 10) = 10\n\
         10 _llseek(3, 0, [10], SEEK_CUR) = 0\n10 read(3, \"abcde\", 10) = 5\n10 read(3, \"\", 10) = 0\n",
    );
}

#[test]
fn a_file_without_a_name_is_one_until_it_gets_one() {
    // By words and by numbers; it is read back, and nothing of it is in its directory.
    for flags in [
        "O_RDWR|O_TMPFILE",
        "O_RDWR|O_EXCL|O_TMPFILE|O_CLOEXEC",
        "0x410002",
        "0x410002 /* O_RDWR|O_TMPFILE */",
    ] {
        let replayed = wholly_as_recorded(&format!(
            "10 mkdir(\"/tmp/d\", 0777) = 0\n10 openat(AT_FDCWD, \"/tmp/d\", {flags}, 0600) = 3\n\
             10 write(3, \"hello\", 5) = 5\n10 pread64(3, \"hello\", 100, 0) = 5\n\
             10 openat(AT_FDCWD, \"/tmp/d\", O_RDONLY|O_DIRECTORY) = 4\n\
             10 getdents64(4, 0x7f /* 2 entries */, 32768) = 48\n10 getdents64(4, 0x7f /* 0 entries */, 32768) = 0\n\
             10 fstat(3, {{st_mode=S_IFREG|0600, st_size=5, ...}}) = 0\n10 close(3) = 0\n10 rmdir(\"/tmp/d\") = 0\n"
        ));
        assert_eq!(replayed.calls["write"].bytes, 5, "{flags}");
    }
    // Its first name, by itself or by its path in /proc, a second one, and one that is taken.
    for link in [
        "linkat(AT_FDCWD, \"/proc/self/fd/3\", AT_FDCWD, {to}, AT_SYMLINK_FOLLOW)",
        "linkat(-100, \"/proc/self/fd/3\", -100, {to}, 0x400)",
        "linkat(3, \"\", AT_FDCWD, {to}, AT_EMPTY_PATH)",
        "linkat(3</tmp/#123 (deleted)>, \"\", AT_FDCWD, {to}, AT_EMPTY_PATH)",
    ] {
        let to = |name: &str| link.replace("{to}", &format!("\"{name}\""));
        wholly_as_recorded(&format!(
            "10 openat(AT_FDCWD, \"/tmp\", O_WRONLY|O_TMPFILE, 0600) = 4\n10 write(4, \"never\", 5) = 5\n\
             10 openat(AT_FDCWD, \"/tmp\", O_WRONLY|O_TMPFILE, 0600) = 3\n10 write(3, \"hello\", 5) = 5\n\
             10 stat(\"/tmp/old\", {{st_mode=S_IFREG|0600, st_size=9, ...}}) = 0\n\
             10 {} = -1 EEXIST (File exists)\n10 {} = 0\n10 {} = 0\n10 {} = -1 EEXIST (File exists)\n\
             10 close(3) = 0\n10 openat(AT_FDCWD, \"/tmp/one\", O_RDONLY) = 3\n10 read(3, \"hello\", 100) = 5\n\
             10 unlink(\"/tmp/one\") = 0\n10 stat(\"/tmp/two\", {{st_mode=S_IFREG|0600, st_size=5, ...}}) = 0\n",
            to("/tmp/old"),
            to("/tmp/one"),
            to("/tmp/two"),
            to("/tmp/two"),
        ));
    }
    // A file that has a name gets another by its descriptor.
    wholly_as_recorded(
        "10 openat(AT_FDCWD, \"a\", O_WRONLY|O_CREAT|O_EXCL, 0666) = 3\n10 write(3, \"xy\", 2) = 2\n\
         10 linkat(3, \"\", AT_FDCWD, \"b\", AT_EMPTY_PATH) = 0\n10 unlink(\"a\") = 0\n\
         10 stat(\"b\", {st_mode=S_IFREG|0644, st_size=2, ...}) = 0\n",
    );
    // A child writes to it, and its parent reads that, and gives it a name.
    wholly_as_recorded(
        "10 openat(AT_FDCWD, \".\", O_RDWR|O_TMPFILE, 0600) = 3\n10 fork() = 11\n11 write(3, \"child\", 5) = 5\n\
         11 +++ exited with 0 +++\n10 wait4(-1, NULL, 0, NULL) = 11\n10 pread64(3, \"child\", 9, 0) = 5\n\
         10 linkat(3, \"\", AT_FDCWD, \"b\", AT_EMPTY_PATH) = 0\n10 close(3) = 0\n\
         10 openat(AT_FDCWD, \"b\", O_RDONLY) = 3\n10 read(3, \"child\", 100) = 5\n",
    );
    // Where it cannot be had, nothing is opened.
    let replayed = as_recorded(
        "10 openat(AT_FDCWD, \"d\", O_RDWR|O_TMPFILE, 0600) = -1 EOPNOTSUPP (Operation not supported)\n\
         10 openat(AT_FDCWD, \"d\", O_RDWR|O_TMPFILE, 0600) = -1 EISDIR (Is a directory)\n\
         10 openat(AT_FDCWD, \"none\", O_RDWR|O_TMPFILE, 0600) = -1 ENOENT (No such file or directory)\n\
         10 openat(AT_FDCWD, \"d/f\", O_WRONLY|O_CREAT, 0600) = 3\n\
         10 openat(AT_FDCWD, \"d/f\", O_RDWR|O_TMPFILE, 0600) = -1 ENOTDIR (Not a directory)\n",
    );
    assert_eq!(replayed.not_modelled.values().sum::<u64>(), 2, "{:?}", replayed.not_modelled);
}
