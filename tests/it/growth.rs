//! Nothing that strangers write costs more than in proportion to its size: a text of any shape is
//! read in two sizes, and the processor time of both is compared. No clock decides: what other
//! processes do does not count, and only growth with the square fails.

use std::path::Path;
use std::time::Duration;

use caproot::config::{Config, Env, Flags};
use caproot::domain::yaml;
use rustix::time::{ClockId, clock_gettime};

/// Four times the size may cost this much more: it is 4 in proportion, 16 with the square.
const MAX_GROWTH: u32 = 10;
/// Below this nothing is compared, since it would be chance.
const NOTHING: Duration = Duration::from_millis(50);

/// The processor time that this thread has had.
fn spent() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(now).expect("a time since the thread began")
}

fn cost<T>(input: &T, read: impl Fn(&T)) -> Duration {
    let start = spent();
    read(input);
    spent().saturating_sub(start)
}

/// Reads what `make` gives for a quarter of `size` and for all of it. Three in a row must be out of
/// proportion to fail.
fn assert_in_proportion<T>(name: &str, size: usize, make: impl Fn(usize) -> T, read: impl Fn(&T)) {
    let (quarter, whole) = (make(size / 4), make(size));
    let mut found = Vec::new();
    for _ in 0..3 {
        let pair = (cost(&quarter, &read), cost(&whole, &read));
        if pair.1 < NOTHING || pair.1 <= pair.0 * MAX_GROWTH {
            return;
        }
        found.push(pair);
    }
    panic!("{name}: a quarter and the whole cost {found:?}");
}

fn repeated(unit: &str, size: usize) -> String {
    unit.repeat(size / unit.len())
}

/// What YAML is made of, and what made readers of it slow.
const SHAPES: &[&str] = &[
    "[",
    "{",
    "[{",
    "{a: ",
    "[a, ",
    "- ",
    "? ",
    "a: ",
    "- - ",
    "!a ",
    "&a ",
    "*a ",
    "'",
    "\"",
    "x",
    " ",
    "\t",
    "\n",
    "\r",
    "#",
    "%",
    "a:\n",
    "- a\n",
    "? a\n",
    "\\",
    "{?",
    "[?",
    "\"a\": ",
    ",",
    "]",
    "[]",
    "[],",
    "!<",
    "%TAG ! a\n",
    "a\n\n",
    "ä",
    "\u{85}",
    "\u{feff}",
    "[a: ,",
    "&a\n",
    "--- ",
    "---\n",
    "...\n",
    "|\n",
    "[\"]\",",
    "['}',{a: ",
    "{\"}\":",
    "[\n",
    "[a: b, ",
    ">\n ",
    ": ",
    "[a,\n",
    "{a,\n",
    "- [\n",
    "{\"",
    "{a: 1}\n",
    "- {a: [b, c]}\n",
    "a: 'b''c'\n",
];

#[test]
fn frontmatter_of_any_shape_is_read_in_proportion() {
    for shape in SHAPES {
        for before in ["", "a: ", "a: [", "a: |\n  "] {
            let make = |size| format!("{before}{}", repeated(shape, size));
            assert_in_proportion(&format!("{before:?} {shape:?}"), 64 << 10, make, |text| {
                let _ = yaml::parse(text);
            });
        }
    }
}

#[test]
fn frontmatter_in_which_no_line_is_like_another_is_read_in_proportion() {
    type Line = fn(usize) -> String;
    let lines: [(&str, Line); 7] = [
        ("keys", |n| format!("k{n}: v\n")),
        ("keys that are lists", |n| format!("[k{n}]: v\n")),
        ("keys in braces", |n| format!("{}k{n}: v,", if n == 0 { "{" } else { "" })),
        ("anchors", |n| format!("k{n}: &a{n} v\n")),
        ("aliases", |n| if n == 0 { "k: &a v\n".into() } else { format!("k{n}: *a\n") }),
        ("tag handles", |n| format!("%TAG !a{n}! b\n")),
        ("tags", |n| format!("- !a{n} b\n")),
    ];
    for (name, line) in lines {
        let make = |size| {
            let mut text = String::new();
            for n in 0..size {
                text.push_str(&line(n));
                if text.len() >= size {
                    break;
                }
            }
            text
        };
        assert_in_proportion(name, 64 << 10, make, |text: &String| {
            let _ = yaml::parse(text);
        });
    }
}

#[test]
fn a_config_file_of_any_shape_is_read_in_proportion() {
    let env = Env::default();
    for shape in SHAPES {
        let make = |size| repeated(shape, size).into_bytes();
        assert_in_proportion(&format!("{shape:?}"), 256 << 10, make, |bytes| {
            let _ = Config::from_bytes(Flags::default(), Path::new("c"), bytes.clone(), &env);
        });
    }
}
