//! `docs/reference/metrics.md`: the metrics in a scrape of a running daemon.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use caproot::daemon::telemetry::RPC_METHODS;
use caproot_core::proto::grpc_code_name;
use tonic::Code;

use super::check_page;
use crate::config::metrics::{scrape_new_daemon, scrape_new_link};

const HEAD: &str = "# Metrics

The daemon serves Prometheus metrics in the OpenMetrics text format, if [`metrics.listen`](config.md#metricslisten)
is set or a socket unit passes a socket named `metrics`:

```yaml
metrics:
  listen: tcp:127.0.0.1:9464
```

Scrape the path `/metrics`, such as `curl http://127.0.0.1:9464/metrics`. Metrics and labels are listed here as
Prometheus stores them, and the meaning is the HELP text of the scrape. No label contains text of a caller or of
a skill. [Monitoring](../operate/monitoring.md) has a dashboard and alerts.

| metric | type | unit | labels | meaning |
| --- | --- | --- | --- | --- |
";

const LINK: &str = "
## Metrics of a link

[`caproot link`](../operate/link.md) serves these metrics, if its file has `metrics.listen`. No metric has a label:

| metric | type | meaning |
| --- | --- | --- |
";

const LABELS: &str = "
## Series of a histogram

A histogram has the series `_bucket`, with the additional label `le`, `_sum` and `_count`.

## Labels

| label | metrics | values |
| --- | --- | --- |
";

/// Metric family of a scrape.
struct MetricFamily {
    /// Name as Prometheus stores it.
    name: String,
    kind: String,
    unit: String,
    help: String,
    /// Labels and their values, in the order of the scrape.
    labels: Vec<(String, Vec<String>)>,
}

impl MetricFamily {
    fn add_label(&mut self, name: &str, value: &str) {
        let at = self
            .labels
            .iter()
            .position(|(known, _)| known == name)
            .unwrap_or_else(|| {
                self.labels.push((name.to_owned(), Vec::new()));
                self.labels.len() - 1
            });
        let (_, values) = &mut self.labels[at];
        if !values.iter().any(|known| known == value) {
            values.push(value.to_owned());
        }
    }
}

/// Parses a scrape.
fn parse_families(scrape: &str) -> Vec<MetricFamily> {
    let mut families: Vec<MetricFamily> = Vec::new();
    for line in scrape.lines() {
        let words: Vec<_> = line.splitn(4, ' ').collect();
        match words[..] {
            ["#", "HELP", name, help] => families.push(MetricFamily {
                name: name.to_owned(),
                kind: String::new(),
                unit: String::new(),
                help: help.to_owned(),
                labels: Vec::new(),
            }),
            ["#", "TYPE", _, kind] => {
                let family = families.last_mut().expect("HELP first");
                kind.clone_into(&mut family.kind);
                if matches!(kind, "counter" | "info") {
                    let suffix = if kind == "counter" { "_total" } else { "_info" };
                    family.name.push_str(suffix);
                }
            }
            ["#", "UNIT", _, unit] => {
                unit.clone_into(&mut families.last_mut().expect("HELP first").unit);
            }
            _ => {
                let Some((_, labels)) = line.split_once('{') else {
                    continue;
                };
                let (labels, _) = labels.rsplit_once('}').expect("closed labels");
                let family = families.last_mut().expect("HELP first");
                assert!(line.starts_with(&family.name), "{line} in {}", family.name);
                for label in labels.trim_end_matches('"').split("\",") {
                    let (name, value) = label.split_once("=\"").expect("a quoted value");
                    if name != "le" {
                        family.add_label(name, value);
                    }
                }
            }
        }
    }
    families
}

/// Returns the values of a label as Markdown, and checks that the scraped values are among them.
fn label_values(metric: &str, label: &str, scraped: &[String]) -> String {
    let fixed: Vec<&str> = match (metric, label) {
        (_, "version") => return "version of the daemon".to_owned(),
        (_, "method") => RPC_METHODS.into_iter().chain(["other"]).collect(),
        ("caproot_calls_total", "code") => (0..=16)
            .map(|n| grpc_code_name(Code::from_i32(n)))
            .collect(),
        _ => scraped.iter().map(|value| &**value).collect(),
    };
    let others: Vec<_> = scraped
        .iter()
        .filter(|value| !fixed.contains(&&***value))
        .collect();
    assert!(
        others.is_empty() && !fixed.is_empty(),
        "{metric} {label}: {others:?}"
    );
    let link = |value: &&str| match (metric, label) {
        ("caproot_diagnostics", "code") => {
            format!("[`{value}`](diagnostics.md#{})", value.to_lowercase())
        }
        _ => format!("`{value}`"),
    };
    let values: Vec<_> = fixed.iter().map(link).collect();
    let values = values.join(", ");
    match label {
        "method" => format!("{values}, for every other method"),
        "reason" => format!("a [reason](root-states.md): {values}"),
        _ => values,
    }
}

/// Metrics of each command.
struct CommandMetrics {
    daemon: Vec<MetricFamily>,
    link: Vec<MetricFamily>,
}

fn render_metrics(metrics: &CommandMetrics) -> String {
    let CommandMetrics {
        daemon: families,
        link,
    } = metrics;
    let mut page = HEAD.to_owned();
    for MetricFamily {
        name,
        kind,
        unit,
        help,
        labels,
    } in families
    {
        let labels: Vec<_> = labels
            .iter()
            .map(|(label, _)| format!("`{label}`"))
            .collect();
        let labels = labels.join(", ");
        writeln!(page, "| `{name}` | {kind} | {unit} | {labels} | {help} |").expect("a string");
    }
    page.push_str(LINK);
    for MetricFamily {
        name, kind, help, ..
    } in link
    {
        writeln!(page, "| `{name}` | {kind} | {help} |").expect("a string");
    }
    page.push_str(LABELS);
    let mut rows: Vec<(String, Vec<String>, String)> = Vec::new();
    for family in families {
        for (label, scraped) in &family.labels {
            let values = label_values(&family.name, label, scraped);
            let metric = format!("`{}`", family.name);
            match rows
                .iter_mut()
                .find(|row| row.0 == *label && row.2 == values)
            {
                Some((_, metrics, _)) => metrics.push(metric),
                None => rows.push((label.clone(), vec![metric], values)),
            }
        }
    }
    for (label, metrics, values) in rows {
        writeln!(page, "| `{label}` | {} | {values} |", metrics.join(", ")).expect("a string");
    }
    page
}

#[tokio::test]
async fn the_page_is_current() {
    let families = parse_families(&scrape_new_daemon().await);
    assert!(families.len() > 20);
    let helps: BTreeSet<_> = families.iter().map(|family| &family.help).collect();
    assert_eq!(
        helps.len(),
        families.len(),
        "two metrics have the same HELP text"
    );
    for family in &families {
        assert!(
            family.help.ends_with('.'),
            "{}: {}",
            family.name,
            family.help
        );
        let (_, unit) = family
            .name
            .trim_end_matches("_total")
            .rsplit_once('_')
            .expect("a prefix");
        assert_eq!(
            unit == "seconds",
            family.unit == "seconds",
            "unit of {}",
            family.name
        );
    }
    let link = parse_families(&scrape_new_link().await);
    assert!(
        link.iter()
            .all(|family| family.labels.is_empty() && family.unit.is_empty())
    );
    assert!(link.len() > 5);
    let metrics = CommandMetrics {
        daemon: families,
        link,
    };
    check_page("metrics", &render_metrics(&metrics));
}
