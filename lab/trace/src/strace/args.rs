//! The arguments of a call, as strace prints them: numbers, quoted bytes, flags, structures, arrays, and paths behind
//! descriptors (`-y`).

/// Quoted bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Text {
    /// The bytes that are shown.
    pub bytes: Vec<u8>,
    /// More were there (`"..."...`).
    pub is_cut: bool,
}

/// One argument, as it is printed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Arg(pub String);

impl Arg {
    /// A number: decimal, hexadecimal or octal, perhaps with what it stands for behind it (`3</tmp/x>`, `0x8800 (flags
    /// ...)`).
    pub fn number(&self) -> Option<i64> {
        number(&self.0).map(|(number, _)| number)
    }

    /// A process's number, as strace itself knows it: with `--pidns-translation` a call may give another
    /// (`2 /* 101 in strace's PID NS */`).
    pub fn pid(&self) -> Option<u32> {
        let own = |remark: &str| remark.trim_start().split_once(" in strace's PID NS")?.0.parse().ok();
        match self.0.split_once("/*").and_then(|(_, remark)| own(remark)) {
            Some(pid) => Some(pid),
            None => u32::try_from(self.number()?).ok(),
        }
    }

    /// True when a flag is set, by its word, or by its bits on Linux where flags are numbers (`-X raw`, `-X verbose`).
    pub fn is_set(&self, word: &str, bits: i64) -> bool {
        self.has(word) || self.number().is_some_and(|number| number & bits == bits)
    }

    /// True for one of several values, by its word, or by its number on Linux.
    pub fn is(&self, word: &str, value: i64) -> bool {
        self.has(word) || self.number() == Some(value)
    }

    /// The path behind a descriptor, where strace shows it; of a file without a name any more (`3</tmp/x>(deleted)`,
    /// and once `3</tmp/x (deleted)>`) the one that it had.
    pub fn note(&self) -> Option<Vec<u8>> {
        let from = self.0.find('<')?;
        let behind = &self.0[from + 1..];
        let inside = match behind.strip_suffix(">(deleted)") {
            Some(inside) => inside,
            None => {
                let inside = behind.strip_suffix('>')?;
                inside.strip_suffix(" (deleted)").unwrap_or(inside)
            }
        };
        Some(unescape(inside).0)
    }

    /// Quoted bytes.
    pub fn text(&self) -> Option<Text> {
        let inside = self.0.trim().strip_prefix('"')?;
        let (bytes, len) = unescape(inside);
        let rest = inside[len..].strip_prefix('"')?;
        Some(Text { bytes, is_cut: rest.starts_with("...") })
    }

    /// True when the word is among the flags.
    pub fn has(&self, word: &str) -> bool {
        self.0.split(['|', ' ', '{', ',', '=']).any(|flag| flag == word)
    }

    /// A field of a structure (`{st_mode=S_IFREG|0644, st_size=5, ...}`).
    pub fn field(&self, name: &str) -> Option<Arg> {
        let inside = self.0.trim().strip_prefix('{')?;
        split(inside.strip_suffix('}').unwrap_or(inside)).into_iter().find_map(|field| {
            field.0.strip_prefix(name)?.strip_prefix('=').map(|value| Arg(value.to_owned()))
        })
    }

    /// The elements of an array (`[3, 4]`).
    pub fn items(&self) -> Option<Vec<Arg>> {
        Some(split(self.0.trim().strip_prefix('[')?.strip_suffix(']')?))
    }

    /// The number in a remark (`/* 5 entries */`).
    pub fn remark(&self) -> Option<u64> {
        let (_, behind) = self.0.split_once("/*")?;
        let digits: String = behind.trim_start().chars().take_while(char::is_ascii_digit).collect();
        digits.parse().ok()
    }
}

/// A number at the beginning, and how many bytes it takes.
pub(super) fn number(text: &str) -> Option<(i64, usize)> {
    let start = text.len() - text.trim_start().len();
    let text = &text[start..];
    let (sign, digits) = match text.strip_prefix('-') {
        Some(rest) => (1, rest),
        None => (0, text),
    };
    let run = |of: &str, radix| of.chars().take_while(|c| c.is_digit(radix)).count();
    let (value, len) = if let Some(hex) = digits.strip_prefix("0x") {
        let len = run(hex, 16);
        // Addresses and offsets may have the highest bit.
        (u64::from_str_radix(&hex[..len], 16).ok()?.cast_signed(), len + 2)
    } else {
        let len = run(digits, 10);
        let octal = len > 1 && digits.starts_with('0') && digits[..len].bytes().all(|b| b < b'8');
        let radix = if octal { 8 } else { 10 };
        (u64::from_str_radix(&digits[..len], radix).ok()?.cast_signed(), len)
    };
    let value = if sign == 1 { value.wrapping_neg() } else { value };
    Some((value, start + sign + len))
}

/// The bytes up to a quote that is none of the text, and how many bytes of text those were.
fn unescape(text: &str) -> (Vec<u8>, usize) {
    let (all, mut at, mut bytes) = (text.as_bytes(), 0, Vec::new());
    while let Some(&byte) = all.get(at) {
        if byte == b'"' {
            break;
        }
        at += 1;
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        let Some(&escaped) = all.get(at) else { break };
        at += 1;
        let digits = |from: usize, max: usize, radix: u32| {
            let digit = |b: &u8| char::from(*b).to_digit(radix);
            all[from..].iter().take(max).map_while(digit).collect::<Vec<_>>()
        };
        let value =
            |digits: &[u32], radix: u32| digits.iter().fold(0, |sum, digit| sum * radix + digit) as u8;
        match escaped {
            b'n' => bytes.push(b'\n'),
            b't' => bytes.push(b'\t'),
            b'r' => bytes.push(b'\r'),
            b'v' => bytes.push(0x0b),
            b'f' => bytes.push(0x0c),
            b'x' => {
                let hex = digits(at, 2, 16);
                at += hex.len();
                bytes.push(value(&hex, 16));
            }
            b'0'..=b'7' => {
                let octal = digits(at - 1, 3, 8);
                at += octal.len() - 1;
                bytes.push(value(&octal, 8));
            }
            other => bytes.push(other),
        }
    }
    (bytes, at)
}

/// Where each argument ends, up to the bracket that closes what they are in: `(arguments, bytes up to that bracket)`;
/// `None` for the second when there is no such bracket.
pub(super) fn split_until_closed(text: &str) -> (Vec<Arg>, Option<usize>) {
    let (all, mut at, mut depth, mut from) = (text.as_bytes(), 0, 0usize, 0);
    let mut args = Vec::new();
    let mut take = |from: usize, to: usize| {
        let one = text[from..to].trim();
        if !one.is_empty() {
            args.push(Arg(one.to_owned()));
        }
    };
    while let Some(&byte) = all.get(at) {
        match byte {
            b'"' => {
                at += 1;
                while all.get(at).is_some_and(|b| *b != b'"') {
                    at += if all[at] == b'\\' { 2 } else { 1 };
                }
            }
            b'/' if all.get(at + 1) == Some(&b'*') => match text[at..].find("*/") {
                Some(len) => at += len + 1,
                None => break,
            },
            // What a descriptor stands for, not a shift or an arrow.
            b'<' if at > 0
                && (all[at - 1].is_ascii_digit() || all[at - 1] == b'D')
                && all.get(at + 1) != Some(&b'<') =>
            {
                match note_end(all, at) {
                    Some(end) => at = end,
                    None => break,
                }
            }
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' if depth == 0 => {
                take(from, at);
                return (args, Some(at));
            }
            b')' | b']' | b'}' => depth -= 1,
            b',' if depth == 0 => {
                take(from, at);
                from = at + 1;
            }
            _ => {}
        }
        at += 1;
    }
    take(from, text.len());
    (args, None)
}

/// The `>` that ends the note which begins at `from`.
fn note_end(all: &[u8], from: usize) -> Option<usize> {
    let mut depth = 0;
    for (at, byte) in all.iter().enumerate().skip(from) {
        match byte {
            b'<' => depth += 1,
            b'>' if all[at - 1] != b'-' => {
                depth -= 1;
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
    }
    None
}

fn split(text: &str) -> Vec<Arg> {
    split_until_closed(text).0
}
