//! The recorded demo shows the output of the binary as it is now.

use std::fs;
use std::process::Command;

use fancy_regex::Regex;
use serde_json::Value;

use super::page::top;
use super::sessions::without_times;
use crate::harness::diff::diff;

/// Size of a picture that README can show.
const PICTURE_MAX_BYTES: usize = 200_000;

/// Returns the text of a terminal without colors and times.
fn plain_text(text: &str) -> String {
    let color = Regex::new("\u{1b}\\[[0-9;]*m").expect("a pattern");
    let text = text.replace("\r\n", "\n");
    let text = color.replace_all(text.as_str(), "");
    text.lines()
        .map(without_times)
        .collect::<Vec<_>>()
        .join("\n")
}

#[test]
fn the_recording_is_the_output_of_the_script() {
    let recording = fs::read_to_string(top().join("docs/demo/demo.cast")).expect("a recording");
    let events = recording.lines().skip(1).map(|line| {
        let event: Value = serde_json::from_str(line).expect("an event");
        event[2].as_str().expect("a text").to_owned()
    });
    let recorded = plain_text(&events.collect::<String>());

    let bin = fs::canonicalize(env!("CARGO_BIN_EXE_caproot")).expect("the binary");
    let path = std::env::var("PATH").expect("PATH");
    let path = format!("{}:{path}", bin.parent().expect("a directory").display());
    let mut command = Command::new("bash");
    command
        .args(["-c", "exec \"$0\" 2>&1"])
        .arg(top().join("docs/demo/demo.sh"));
    let command = command
        .env_clear()
        .env("PATH", path)
        .env("CAPROOT_DEMO_FAST", "1");
    let output = command.output().expect("bash runs");
    let printed = plain_text(&String::from_utf8(output.stdout).expect("text"));
    assert!(output.status.success(), "{printed}");
    assert!(
        printed == recorded,
        "run docs/demo/record to record the demo again\n{}",
        diff(&recorded, &printed)
    );
}

#[test]
fn the_picture_shows_the_recording() {
    let picture = fs::read_to_string(top().join("docs/demo/demo.svg")).expect("a picture");
    assert!(picture.len() < PICTURE_MAX_BYTES, "{} bytes", picture.len());
    let shown = Regex::new("<text[^>]*>([^<]*)</text>").expect("a pattern");
    let shown: String = shown
        .captures_iter(picture.as_str())
        .filter_map(Result::ok)
        .map(|t| t[1].to_owned())
        .collect();
    let script = fs::read_to_string(top().join("docs/demo/demo.sh")).expect("a script");
    let command = Regex::new("(?m)^(?:run|show) ['\"].*?(caproot [a-z ]+)").expect("a pattern");
    let commands = command
        .captures_iter(script.as_str())
        .filter_map(Result::ok);
    let commands: Vec<_> = commands.map(|found| found[1].to_owned()).collect();
    assert_eq!(commands.len(), 5, "{commands:?}");
    // Each word is an element.
    for command in commands {
        let words = command.replace(' ', "");
        assert!(shown.contains(&words), "{command}: run docs/demo/record");
    }
    // A renderer without animations shows the last frame.
    let last_offset = Regex::new(r"translateX\(-(\d+)px\)\}\}").expect("a pattern");
    let last_offset = last_offset
        .captures(picture.as_str())
        .expect("a match")
        .expect("a frame");
    let frames = format!(
        "<g transform=\"translate(-{})\" style=\"animation-",
        &last_offset[1]
    );
    assert!(picture.contains(&frames), "{frames}: run docs/demo/record");
    for dir in ["/tmp/", "/home/", "/root/"] {
        assert!(!shown.contains(dir), "the picture shows {dir}");
    }
}
