//! One line of a log.

use super::args::{Arg, number, split_until_closed};

/// What a call answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// A number: a length, a descriptor, an address.
    Value(i64),
    /// It failed: the name of the error (`ENOENT`).
    Error(String),
    /// It never returned (`?`).
    None,
}

/// What a line is.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Line<'a> {
    Call {
        name: String,
        args: Vec<Arg>,
        answer: Answer,
        note: Option<Vec<u8>>,
        took_us: Option<f64>,
    },
    Begun {
        name: String,
        head: &'a str,
    },
    /// The beginning of an exec by a thread, which goes on under the number of its process.
    Becomes {
        name: String,
        head: &'a str,
        pid: u32,
    },
    Resumed {
        name: &'a str,
        tail: &'a str,
    },
    Exited,
    /// The process goes on under another's number.
    Superseded,
    /// A signal, or a word of strace's own.
    Aside,
}

/// Where a line came from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum From {
    /// The number is on the line.
    Pid(u32),
    /// There is none: the only process.
    Only,
}

/// The highest number that Linux gives to a process (`PID_MAX_LIMIT`); what is higher is a time.
const MAX_PID: u32 = 1 << 22;

/// A process's number, perhaps with its name (`-Y`), and what is behind it.
fn pid(text: &str) -> Option<(u32, &str)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let pid = text[..digits].parse().ok().filter(|pid| *pid <= MAX_PID)?;
    let behind = &text[digits..];
    match behind.strip_prefix('<') {
        // A name may have a `>` of its own; it has no more than 15 bytes, unless some are escaped.
        Some(name) => {
            let ends = || name.match_indices("> ").chain(name.match_indices(">]")).map(|(end, _)| end);
            let end = ends().filter(|end| *end <= 15).max().or_else(|| ends().min())?;
            Some((pid, &name[end + 1..]))
        }
        None => Some((pid, behind)),
    }
}

/// Takes a process's number and a time from the beginning of a line.
pub(super) fn prefix(line: &str) -> (From, &str) {
    let mut rest = line.trim_start();
    let mut from = From::Only;
    if let Some(inside) = rest.strip_prefix("[pid") {
        if let Some((pid, behind)) = pid(inside.trim_start())
            && let Some(behind) = behind.trim_start().strip_prefix(']')
        {
            (from, rest) = (From::Pid(pid), behind.trim_start());
        }
    } else if let Some((pid, behind)) = pid(rest)
        && let Some(behind) = behind.strip_prefix(' ')
    {
        (from, rest) = (From::Pid(pid), behind.trim_start());
    }
    // A time of day, seconds since 1970, or since the call before.
    if let Some((time, behind)) = rest.split_once(' ')
        && time.starts_with(|c: char| c.is_ascii_digit())
        && time.bytes().all(|b| b.is_ascii_digit() || b == b':' || b == b'.')
    {
        rest = behind.trim_start();
    }
    if let Some(inside) = rest.strip_prefix("(+")
        && let Some((_, behind)) = inside.split_once(')')
    {
        rest = behind.trim_start();
    }
    // The call's number (`-n`), and where the program was (`-i`).
    while let Some((inside, behind)) = rest.strip_prefix('[').and_then(|inside| inside.split_once(']'))
        && inside.bytes().all(|b| b.is_ascii_hexdigit() || b == b' ' || b == b'?')
    {
        rest = behind.trim_start();
    }
    (from, rest)
}

/// Reads what is behind the prefix.
///
/// # Errors
/// What was expected.
pub(super) fn read(rest: &str) -> Result<Line<'_>, &'static str> {
    if rest.starts_with("---") {
        return Ok(Line::Aside);
    }
    if let Some(end) = rest.strip_prefix("+++ ") {
        return match end {
            end if end.starts_with("exited with ") || end.starts_with("killed by ") => Ok(Line::Exited),
            end if end.starts_with("superseded by ") => Ok(Line::Superseded),
            _ => Err("expected `exited with` or `killed by` behind `+++`"),
        };
    }
    if rest.starts_with("strace: ") || rest.starts_with("[ Process ") || rest.starts_with("> /") {
        return Ok(Line::Aside);
    }
    if let Some(resumed) = rest.strip_prefix("<... ") {
        let (name, tail) = resumed.split_once(" resumed>").ok_or("expected `<... NAME resumed>`")?;
        return Ok(Line::Resumed { name, tail });
    }
    let open = rest.find('(').ok_or("expected a call such as `read(3, \"x\", 1) = 1`")?;
    let name = &rest[..open];
    let proper = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.is_empty() || !name.chars().all(proper) {
        return Err("expected the name of a system call before `(`");
    }
    let cut = |how| rest.trim_end().strip_suffix(how);
    if let Some(head) = cut("<unfinished ...>").or_else(|| cut("<detached ...>")) {
        // A call that its process did not live to see the end of is shown in this way, too.
        return Ok(Line::Begun { name: name.to_owned(), head: head.trim_end() });
    }
    if let Some((head, to)) =
        rest.trim_end().strip_suffix(" ...>").and_then(|rest| rest.rsplit_once("<pid changed to "))
    {
        let pid = to.parse().map_err(|_| "expected a number behind `pid changed to`")?;
        return Ok(Line::Becomes { name: name.to_owned(), head: head.trim_end(), pid });
    }
    call(name, &rest[open + 1..])
}

/// Reads a call from its first argument on.
pub(super) fn call<'a>(name: &str, text: &str) -> Result<Line<'a>, &'static str> {
    let (args, closed) = split_until_closed(text);
    let behind = closed.map(|at| &text[at..]).and_then(|behind| behind.strip_prefix(')'));
    let behind = behind.ok_or("expected `)` behind the arguments")?.trim();
    let answer = behind.strip_prefix("= ").ok_or("expected `= ` and an answer behind the arguments")?;
    let (answer, took_us) = took(answer.trim());
    let note = Arg(answer.to_owned()).note();
    let answer = if answer.starts_with('?') {
        Answer::None
    } else {
        let (value, len) = number(answer).ok_or("expected a number behind `=`")?;
        let word = answer[len..].split_whitespace().next().unwrap_or("");
        if value == -1 && word.starts_with('E') {
            Answer::Error(word.to_owned())
        } else if answer[len..].trim_start().starts_with("/*") {
            Answer::Value(Arg(answer.to_owned()).pid().map_or(value, i64::from))
        } else {
            Answer::Value(value)
        }
    };
    Ok(Line::Call { name: name.to_owned(), args, answer, note, took_us })
}

/// The time that a call took (`-T`), behind its answer.
fn took(answer: &str) -> (&str, Option<f64>) {
    let time = answer.strip_suffix('>').and_then(|answer| answer.rsplit_once(" <"));
    match time.and_then(|(before, seconds)| Some((before.trim_end(), seconds.parse::<f64>().ok()?))) {
        Some((before, seconds)) if seconds.is_finite() => (before, Some(seconds * 1e6)),
        _ => (answer, None),
    }
}
