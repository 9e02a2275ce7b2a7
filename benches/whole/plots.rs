//! Plots as SVG: growth with a panel for each measurement, and the distribution of the times of
//! changes.

use crate::context::Outcome;
use crate::report::{Line, Plot, Report};
use plotters::chart::SeriesLabelPosition;
use plotters::coord::Shift;
use plotters::prelude::{
    BLACK, ChartBuilder, Circle, Color as _, DrawingArea, EmptyElement, IntoDrawingArea as _,
    IntoFont as _, LineSeries, PathElement, RGBColor, SVGBackend, Text, WHITE,
};
use std::path::Path;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

const PANEL: (u32, u32) = (480, 300);
const OURS: RGBColor = RGBColor(0x1f, 0x5f, 0xa8);
const BESIDE: RGBColor = RGBColor(0x99, 0x99, 0x99);

/// Draws the plots of all measurements in the report.
pub(crate) fn draw(report: &Report, dir: &Path) -> Outcome<()> {
    let origin = format!(
        "{}, {} cores, {}",
        report.machine.cpu, report.machine.cores, report.machine.date
    );
    for (plot, file, axis) in [
        (Plot::Skills, "growth-skills.svg", "skills"),
        (Plot::Roots, "growth-roots.svg", "roots, of 5,120 skills"),
    ] {
        let lines = lines_of(report, plot);
        if lines.is_empty() {
            continue;
        }
        let path = dir.join(file);
        let area = SVGBackend::new(&path, (2 * PANEL.0, 2 * PANEL.1 + 20)).into_drawing_area();
        area.fill(&WHITE)?;
        let (panels, foot) = area.split_vertically(2 * PANEL.1);
        for (panel, line) in panels.split_evenly((2, 2)).iter().zip(lines) {
            draw_growth(panel, line, axis)?;
        }
        draw_origin(&foot, &origin)?;
        area.present()?;
    }
    let lines = lines_of(report, Plot::Changes);
    if !lines.is_empty() {
        let path = dir.join("changes.svg");
        let area = SVGBackend::new(&path, (2 * PANEL.0, PANEL.1 + 120)).into_drawing_area();
        area.fill(&WHITE)?;
        let (panel, foot) = area.split_vertically(PANEL.1 + 100);
        draw_changes(&panel, &lines)?;
        draw_origin(&foot, &origin)?;
        area.present()?;
    }
    Ok(())
}

fn lines_of(report: &Report, plot: Plot) -> Vec<&Line> {
    report
        .lines
        .iter()
        .filter(|line| line.plot == plot)
        .collect()
}

fn draw_origin(foot: &Area<'_>, origin: &str) -> Outcome<()> {
    foot.draw(&Text::new(
        origin.to_owned(),
        (10, 4),
        ("sans-serif", 12).into_font().color(&BESIDE),
    ))?;
    Ok(())
}

/// Draws the points of one measurement from zero, and the straight line from the first to the last
/// point.
fn draw_growth(panel: &Area<'_>, line: &Line, axis: &str) -> Outcome<()> {
    let max = |value: fn(&(f64, f64)) -> f64| line.points.iter().map(value).fold(0.0, f64::max);
    let (x, y) = (max(|point| point.0), max(|point| point.1));
    let mut chart = ChartBuilder::on(panel)
        .caption(format!("{}, {}", line.label, line.unit), ("sans-serif", 15))
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(52)
        .build_cartesian_2d(0.0..x * 1.05, 0.0..y * 1.15)?;
    chart
        .configure_mesh()
        .x_desc(axis)
        .x_labels(6)
        .y_labels(6)
        .light_line_style(WHITE)
        .draw()?;
    let ends = line
        .points
        .first()
        .into_iter()
        .chain(line.points.last())
        .copied();
    chart.draw_series(LineSeries::new(ends, BESIDE.stroke_width(1)))?;
    chart.draw_series(LineSeries::new(
        line.points.iter().copied(),
        OURS.stroke_width(2),
    ))?;
    let points = line.points.iter().map(|point| {
        let value = format!("{:.1}", point.1);
        EmptyElement::at(*point)
            + Circle::new((0, 0), 4, OURS.filled())
            + Text::new(
                value,
                (-8, -18),
                ("sans-serif", 11).into_font().color(&BLACK),
            )
    });
    chart.draw_series(points)?;
    Ok(())
}

/// Draws the percentage of changes within a time, for both sides.
fn draw_changes(panel: &Area<'_>, lines: &[&Line]) -> Outcome<()> {
    let times = || {
        lines
            .iter()
            .flat_map(|line| &line.points)
            .map(|point| point.0)
    };
    let (least, most) = (
        times().fold(f64::MAX, f64::min),
        times().fold(0.0, f64::max),
    );
    let mut chart = ChartBuilder::on(panel)
        .caption(
            "changes that came within so many ms, in %",
            ("sans-serif", 15),
        )
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(52)
        .build_cartesian_2d(least * 0.95..most * 1.05, 0.0..102.0)?;
    chart
        .configure_mesh()
        .x_desc("ms")
        .x_labels(12)
        .light_line_style(WHITE)
        .draw()?;
    for (line, color) in lines.iter().zip([BESIDE, OURS]) {
        chart
            .draw_series(LineSeries::new(
                line.points.iter().copied(),
                color.stroke_width(2),
            ))?
            .label(&line.label)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], color.stroke_width(2)));
    }
    let labels = &mut chart.configure_series_labels();
    labels
        .position(SeriesLabelPosition::LowerRight)
        .label_font(("sans-serif", 13));
    labels.background_style(WHITE).border_style(BESIDE).draw()?;
    Ok(())
}
