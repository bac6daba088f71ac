//! What strace writes, read: every kind of line, however it is prefixed and cut, and bytes that it never wrote.

use pageferry_trace::strace::{Answer, Arg, Call, Log, What};
use proptest::prelude::*;

fn calls(text: &str) -> Vec<(u32, Call)> {
    let log = Log::read(text.as_bytes());
    assert_eq!(log.skipped.first, None, "{text}");
    let call = |entry| match entry {
        pageferry_trace::strace::Entry { pid, what: What::Call(call), .. } => Some((pid, call)),
        _ => None,
    };
    log.entries.into_iter().filter_map(call).collect()
}

fn one(text: &str) -> Call {
    calls(text).pop().expect("a call").1
}

fn args(call: &Call) -> Vec<&str> {
    call.args.iter().map(|arg| arg.0.as_str()).collect()
}

#[test]
fn every_kind_of_line_is_read() {
    let call = one("openat(AT_FDCWD, \"a, b)\\\"\\303\\244\\n\", O_RDONLY|O_CLOEXEC) = 3\n");
    assert_eq!(call.args[1].text().expect("a text").bytes, "a, b)\"ä\n".as_bytes());
    assert!(call.args[2].has("O_CLOEXEC") && !call.args[2].has("O_RDWR"));
    assert_eq!(call.answer, Answer::Value(3));
    let call =
        one("7 1700000000.123456 access(\"/x\", R_OK) = -1 ENOENT (No such file or directory) <0.000012>");
    assert_eq!((call.answer, call.took_us), (Answer::Error("ENOENT".into()), Some(12.0)));
    let call = one("[pid  12] 18:01:10.339054 read(3</tmp/a (b)>, \"\\0\\1\\2\"..., 4096) = 4096");
    assert_eq!(call.args[0].note().as_deref(), Some(&b"/tmp/a (b)"[..]));
    assert_eq!(call.args[0].number(), Some(3));
    let text = call.args[1].text().expect("a text");
    assert_eq!((text.bytes, text.is_cut), (vec![0, 1, 2], true));
    let call =
        one("     0.000123 newfstatat(3, \"\", {st_mode=S_IFREG|0644, st_size=42, ...}, AT_EMPTY_PATH) = 0");
    assert_eq!(call.args[2].field("st_size").and_then(|size| size.number()), Some(42));
    assert!(call.args[2].field("st_mode").expect("there").has("S_IFREG"));
    let call = one("getdents64(3, 0x55d /* 12 entries */, 32768) = 400");
    assert_eq!((call.args[1].remark(), call.args.len()), (Some(12), 3));
    let call = one("pipe2([3, 4], O_CLOEXEC) = 0");
    let ends: Vec<_> = call.args[0].items().expect("two").iter().filter_map(Arg::number).collect();
    assert_eq!(ends, [3, 4]);
    let call = one("mmap(NULL, 8192, PROT_READ, MAP_PRIVATE, 3, 0x2000) = 0x7f12f77a8000");
    assert_eq!((call.args[5].number(), call.answer), (Some(0x2000), Answer::Value(0x7f12_f77a_8000)));
    let call = one("fcntl(3, F_GETFL) = 0x8000 (flags O_RDONLY|O_LARGEFILE)");
    assert_eq!(call.answer, Answer::Value(0x8000));
    let call = one("writev(1, [{iov_base=\"ab\", iov_len=2}, {iov_base=\"c\", iov_len=1}], 2) = 3");
    assert_eq!(call.args[1].items().expect("two")[1].field("iov_len").and_then(|len| len.number()), Some(1));
    let call = one("sendto(3<TCP:[127.0.0.1:80->127.0.0.1:9]>, \"x\", 1, 0, NULL, 0) = 1");
    assert_eq!(args(&call)[1], "\"x\"");
    let call = one("openat(AT_FDCWD</tmp/x>, \"a\", O_WRONLY|O_CREAT, 0644) = 5</tmp/x/a>");
    assert_eq!((call.args[3].number(), call.note.as_deref()), (Some(0o644), Some(&b"/tmp/x/a"[..])));
    assert_eq!(call.args[0].note().as_deref(), Some(&b"/tmp/x"[..]));
    let call = one("execve(\"/bin/ls\", [\"ls\", \"-l\"], 0x7ffe /* 9 vars */) = 0");
    assert_eq!(call.args.len(), 3);
    assert_eq!(one("fallocate(3, 0, 1<<12, 5) = 0").args.len(), 4);
    assert_eq!(one("[pid     7] [   0] [00007f8973b75a10] read(3, \"x\", 1) = 1").args.len(), 3);
    assert_eq!(one("7 [????????????????] read(3, \"x\", 1) = 1").name, "read");
    let call = one("openat(-100 /* AT_FDCWD */, \"a\", 0x241 /* O_WRONLY|O_CREAT|O_TRUNC */, 0666) = 3");
    assert!(call.args[0].is("AT_FDCWD", -100) && call.args[2].has("O_CREAT"));
    assert!(call.args[2].is_set("O_TRUNC", 0o1000) && !call.args[2].is_set("O_APPEND", 0o2000));
    assert_eq!(one("restart_syscall(<... resuming interrupted read ...>) = 1").name, "restart_syscall");
    assert_eq!(one("exit_group(0) = ?").answer, Answer::None);
    assert_eq!(
        one("read(0, 0x1, 5) = ? ERESTARTSYS (To be restarted if SA_RESTART is set)").answer,
        Answer::None
    );
}

#[test]
fn calls_that_were_cut_in_two_count_where_they_end() {
    let text = "10 read(3,  <unfinished ...>\n\
                11 write(4, \"x\", 1 <unfinished ...>\n\
                11 <... write resumed>) = 1\n\
                10 <... read resumed>\"x\", 1) = 1\n\
                11 --- SIGPIPE {si_signo=SIGPIPE, si_code=SI_USER, si_pid=1, si_uid=0} ---\n\
                11 +++ killed by SIGPIPE +++\n\
                10 vfork( <unfinished ...>\n\
                12 close(3) = 0\n\
                10 <... vfork resumed>) = 12\n\
                10 wait4(-1,  <unfinished ...>\n\
                12 +++ exited with 0 +++\n";
    let log = Log::read(text.as_bytes());
    let told: Vec<_> = log
        .entries
        .iter()
        .map(|entry| match &entry.what {
            What::Call(call) => (entry.pid, call.name.as_str(), call.args.len()),
            What::Exited => (entry.pid, "exited", 0),
        })
        .collect();
    let expected = [
        (11, "write", 3),
        (10, "read", 3),
        (11, "exited", 0),
        (10, "vfork", 0),
        (12, "close", 1),
        (12, "exited", 0),
    ];
    assert_eq!(told, expected);
    assert_eq!((log.skipped.count, log.unfinished), (0, 1));
}

#[test]
fn lines_without_a_number_are_the_only_processes() {
    let text = "close(3) = 0\n\
                clone(child_stack=NULL, flags=SIGCHLD) = 8\n\
                strace: Process 8 attached\n\
                [pid     7] close(4) = 0\n\
                [pid     8] close(5) = 0\n\
                [pid     8] +++ exited with 0 +++\n\
                --- SIGCHLD {si_signo=SIGCHLD} ---\n\
                close(6) = 0\n";
    let pids: Vec<u32> = calls(text).iter().map(|(pid, _)| *pid).collect();
    assert!(pids[0] == pids[1] && pids[1] == pids[2] && pids[4] == pids[0] && pids[3] == 8, "{pids:?}");
}

#[test]
fn a_process_has_one_number_in_every_form() {
    for (text, pid) in [
        ("7 close(3) = 0", 7),
        ("7<cat> close(3) = 0", 7),
        ("7<a > b> close(3) = 0", 7),
        ("[pid     7] close(3) = 0", 7),
        ("[pid     7<tmux: server>] close(3) = 0", 7),
        ("7<x> 12:00:01 close(3) = 0", 7),
        ("1700000000 close(3) = 0", 0),
    ] {
        let calls = calls(text);
        assert_eq!((calls.len(), calls[0].0, calls[0].1.name.as_str()), (1, pid, "close"), "{text}");
    }
    // A child's number is strace's own, whatever the program was answered.
    let log = Log::read(
        b"7 fork() = 2 /* 8 in strace's PID NS */\n8 close(3) = 0\n7 wait4(-1, NULL, 0, NULL) = 8<x>\n",
    );
    let answers: Vec<_> = log
        .entries
        .iter()
        .map(|entry| match &entry.what {
            What::Call(call) => call.answer.clone(),
            What::Exited => Answer::None,
        })
        .collect();
    assert_eq!(answers, [Answer::Value(8), Answer::Value(0), Answer::Value(8)]);
    // A thread that execs is its process from then on; what the process had begun never ends.
    let log = Log::read(
        b"7 futex(0x1, FUTEX_WAIT, 1, NULL <unfinished ...>\n\
          8 execve(\"/x\", [\"x\"], 0x7f /* 3 vars */ <pid changed to 7 ...>\n\
          7 +++ superseded by execve in pid 8 +++\n7 <... execve resumed>) = 0\n7 close(3 <detached ...>\n",
    );
    assert_eq!((log.skipped.count, log.unfinished, log.entries.len()), (0, 2, 1));
    assert_eq!(log.entries[0].pid, 7);
}

#[test]
fn numbers_are_read_in_every_base() {
    for (text, number) in [
        ("0", Some(0)),
        ("7", Some(7)),
        ("-7", Some(-7)),
        ("010", Some(8)),
        ("077", Some(63)),
        ("089", Some(89)),
        ("0x1f", Some(31)),
        ("0xffffffffffffffff", Some(-1)),
        ("18446744073709551615", Some(-1)),
        ("18446744073709551616", None),
        ("-100 /* AT_FDCWD */", Some(-100)),
        (" 3</tmp/x>", Some(3)),
        ("0x", None),
        ("-", None),
        ("NULL", None),
    ] {
        assert_eq!(Arg(text.to_owned()).number(), number, "{text}");
    }
}

#[test]
fn bytes_are_read_in_every_way_that_they_are_escaped() {
    for (text, bytes) in [
        (r#""\n\t\r\v\f\\\"""#, &b"\n\t\r\x0b\x0c\\\""[..]),
        // Three digits stand for one byte, and what follows is another.
        (r#""\0001""#, b"\x001"),
        (r#""\18\419""#, b"\x018\x219"),
        (r#""\1771\377""#, b"\x7f1\xff"),
        (r#""\x4142\x4""#, b"A42\x04"),
    ] {
        let text = Arg(text.to_owned()).text().expect("a text");
        assert_eq!((&text.bytes[..], text.is_cut), (bytes, false));
    }
    // A quote and a bracket in a text end neither it nor the call.
    let call = one(r#"write(1, "\")\\", 3) = 3"#);
    assert_eq!(call.args[1].text().expect("a text").bytes, b"\")\\");
}

#[test]
fn flags_are_set_when_all_their_bits_are() {
    let flags = |text: &str| Arg(text.to_owned());
    const TWO_BITS: i64 = 0o101_000;
    for (text, is_set) in
        [("0101000", true), ("0101002", true), ("0100000", false), ("01000", false), ("0", false)]
    {
        assert_eq!(flags(text).is_set("O_BOTH", TWO_BITS), is_set, "{text}");
    }
    assert!(flags("O_RDWR|O_BOTH").is_set("O_BOTH", TWO_BITS) && !flags("O_RDWR").is_set("O_BOTH", TWO_BITS));
    assert!(flags("3").is("SEEK", 3) && flags("SEEK").is("SEEK", 3) && !flags("7").is("SEEK", 3));
}

#[test]
fn a_descriptor_has_a_path_in_every_form() {
    for (text, path) in [
        ("3</tmp/x>", Some("/tmp/x")),
        ("AT_FDCWD</tmp>", Some("/tmp")),
        ("AT_FDCWD</tmp/a, (b>", Some("/tmp/a, (b")),
        (r#"3</tmp/x \74y\76 -\76 \">"#, Some("/tmp/x <y> -> \"")),
        // The file has no name any more.
        ("3</tmp/x>(deleted)", Some("/tmp/x")),
        ("3</tmp/x (deleted)>", Some("/tmp/x")),
        ("3</tmp/x (deleted)>(deleted)", Some("/tmp/x (deleted)")),
        ("3<socket:[77]>", Some("socket:[77]")),
        ("3<TCP:[127.0.0.1:80->127.0.0.1:9]>", Some("TCP:[127.0.0.1:80->127.0.0.1:9]")),
        ("3", None),
    ] {
        let call = one(&format!("write({text}, \"abc\", 3) = 3"));
        assert_eq!((call.args.len(), call.args[0].note()), (3, path.map(|path| path.into())), "{text}");
        if text.starts_with('3') {
            let call = one(&format!("dup(7) = {text}"));
            assert_eq!(call.note, path.map(|path| path.into()), "{text}");
        }
    }
}

/// An error has a name; other negative numbers are values.
#[test]
fn answers_below_zero() {
    let call = |answer: &str| one(&format!("lseek(3, 0, SEEK_CUR) = {answer}")).answer;
    assert_eq!(call("-1 ENOENT (No such file or directory)"), Answer::Error("ENOENT".into()));
    assert_eq!(call("-1"), Answer::Value(-1));
    assert_eq!(call("-2 ENOENT"), Answer::Value(-2));
}

/// Numbers up to the highest that Linux gives; names up to the longest, whatever is in them.
#[test]
fn a_processes_number_and_name_have_limits() {
    for (text, pid) in [
        ("4194304 close(3) = 0", 4_194_304),
        ("4194305 close(3) = 0", 0),
        ("[pid 4194304] close(3) = 0", 4_194_304),
        ("7<a> b> cdefghijk> close(3) = 0", 7),
        ("7<a> bcdefghijklm> close(3) = 0", 7),
        ("[pid 7<a] b> c>] close(3) = 0", 7),
    ] {
        let calls = calls(text);
        assert_eq!((calls.len(), calls[0].0, calls[0].1.name.as_str()), (1, pid, "close"), "{text}");
    }
}

/// Whose a line without a number is, depends on who is alive.
#[test]
fn who_has_ended_has_no_more_lines() {
    let pids = |text: &str| calls(text).iter().map(|(pid, _)| *pid).collect::<Vec<_>>();
    // The child is left alone, and speaks without a number then.
    let left = "7 fork() = 8\n7 +++ exited with 0 +++\nclose(3) = 0\n";
    assert_eq!(pids(left), [7, 8]);
    // So it is when it has said nothing before.
    let silent = "7 close(1) = 0\n7 vfork() = 8\n8 +++ killed by SIGKILL +++\nclose(3) = 0\n";
    assert_eq!(pids(silent), [7, 7, 7]);
    // A thread that execs goes on as its process, which is the only one then.
    let exec = "7 clone(child_stack=0x1) = 8\n8 execve(\"/x\", [], 0x7f /* 0 vars */ <pid changed to 7 ...>\n\
                7 <... execve resumed>) = 0\nclose(3) = 0\n";
    assert_eq!(pids(exec), [7, 7, 7]);
    // Only what was begun is resumed.
    let log = Log::read(b"7 read(3,  <unfinished ...>\n7 <... write resumed>\"x\", 1) = 1\n");
    assert_eq!((log.entries.len(), log.skipped.count, log.unfinished), (0, 1, 1));
}

#[test]
fn what_strace_did_not_write_is_counted_and_named() {
    let log = Log::read(
        b"close(3) = 0\nabc\nwrite(1, \"abc\\n\", 4abc\n) = 4\nclose(4) = 0\n<... read resumed>) = 0\n",
    );
    assert_eq!(log.entries.len(), 2);
    assert_eq!(log.skipped.count, 4);
    let (line, expected) = log.skipped.first.expect("one");
    assert_eq!(line, 2);
    assert!(expected.contains("expected a call such as"), "{expected}");
}

/// A call as strace prints it, and what must come out: the number of its arguments, its answer.
fn any_call() -> impl Strategy<Value = (String, usize, String, Answer)> {
    let text = proptest::collection::vec(any::<u8>(), 0..12).prop_map(|bytes| {
        let escaped: String = bytes.iter().map(|byte| format!("\\{byte:03o}")).collect();
        format!("\"{escaped}\"")
    });
    let arg = prop_oneof![
        (0..100i64).prop_map(|n| n.to_string()),
        (0..100i64).prop_map(|n| format!("{n}</a path/with, a comma (1)>")),
        text,
        Just("{st_mode=S_IFREG|0644, st_size=5, ...}".to_owned()),
        Just("[{iov_base=\"a)\", iov_len=2}, {iov_base=\", (\", iov_len=3}]".to_owned()),
        Just("O_RDONLY|O_CLOEXEC".to_owned()),
        Just("0x7ffe /* 3, (vars */".to_owned()),
        Just("NULL".to_owned()),
    ];
    let answer = prop_oneof![
        (-1000..1000i64).prop_map(|n| (n.to_string(), Answer::Value(n))),
        Just(("-1 ENOENT (No such file or directory)".to_owned(), Answer::Error("ENOENT".into()))),
        (0..1i64 << 40).prop_map(|n| (format!("{n:#x}"), Answer::Value(n))),
        Just(("?".to_owned(), Answer::None)),
    ];
    ("[a-z_]{1,9}[0-9]{0,2}", proptest::collection::vec(arg, 0..6), answer).prop_map(
        |(name, args, (said, answer))| {
            let count = args.len();
            (format!("{name}({})", args.join(", ")), count, said, answer)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn calls_come_out_as_they_went_in(
        (call, count, said, answer) in any_call(),
        prefix in prop_oneof![
            Just(""), Just("17 "), Just("17    "), Just("[pid 17] "), Just("17 18:01:10 "), Just("17 1700000000.5 "),
            Just("     0.000012 "), Just("[pid    17] 18:01:10.339054 (+     0.000001) "),
        ],
        took in prop_oneof![Just(""), Just(" <0.000250>")],
        pad in 1..20usize,
        cut in any::<proptest::sample::Index>(),
    ) {
        let whole = format!("{prefix}{call}{:pad$}= {said}{took}\n", "");
        let read = one(&whole);
        prop_assert_eq!(&read.answer, &answer);
        prop_assert_eq!(read.args.len(), count);
        prop_assert_eq!(read.took_us, (!took.is_empty()).then_some(250.0));
        // Cut between two arguments, as strace cuts.
        let commas: Vec<usize> = call.match_indices('(').take(1).map(|(at, _)| at + 1)
            .chain((0..call.len()).filter(|at| call.is_char_boundary(*at) && call[..*at].ends_with(", ")
                && Log::read(format!("{})= 0", &call[..*at]).replace(", )", ") ").as_bytes()).skipped.count == 0))
            .collect();
        let at = commas[cut.index(commas.len())];
        let name = &call[..call.find('(').expect("it has one")];
        let cut = format!(
            "{prefix}{} <unfinished ...>\n9 close(1) = 0\n{prefix}<... {name} resumed>{} = {said}{took}\n",
            &call[..at], &call[at..]
        );
        let log = Log::read(cut.as_bytes());
        prop_assert_eq!(&log.skipped.first, &None, "{}", cut);
        let What::Call(joined) = &log.entries[1].what else { panic!("a call") };
        prop_assert_eq!(&joined.args, &read.args, "{}", cut);
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let log = Log::read(&bytes);
        prop_assert!(log.entries.len() as u64 + log.skipped.count <= log.lines as u64);
    }

    #[test]
    fn no_text_makes_it_panic(
        lines in proptest::collection::vec(
            "[0-9]{0,2} ?[a-z]{0,3}[(<\\[{\"]{0,2}[a-z0-9, .|=\\\\\"<>(){}\\[\\]/*+-]{0,30}",
            0..12,
        )
    ) {
        let log = Log::read(lines.join("\n").as_bytes());
        prop_assert!(log.entries.len() as u64 + log.skipped.count <= log.lines as u64);
    }
}
