//! The figures as a picture: a bar for each, and a mark where its bound is, or an arrow where that is beyond the longest bar.

use std::fmt::Write;

use super::{
    figure::{Figure, FileFigures, Machine, ProcessorKind, Timing},
    report::{digits, rate},
};

const WIDTH: u32 = 1120;
const MARGIN: u32 = 24;
/// Where bars begin.
const LEFT: u32 = 330;
/// Length of the longest bar.
const BAR: u32 = 300;
const ROW: u32 = 26;

const CPU_COLOUR: &str = "#2f6db3";
const GPU_COLOUR: &str = "#3d8b40";
const STYLE: &str = "text{font-family:system-ui,sans-serif;font-size:13px;fill:#222}.h{font-size:15px;font-weight:600}\
                     .s{fill:#555;font-size:12px}.e{text-anchor:end}";

/// Returns the figures as a drawing.
pub fn draw(machine: &Machine, files: &[FileFigures]) -> String {
    let mut canvas = Canvas { body: String::new(), y: MARGIN };
    for file in files {
        canvas.title(file);
        let (windows, others): (Vec<&Figure>, Vec<&Figure>) =
            file.figures.iter().partition(|figure| figure.work.is_windows());
        canvas.section("MB of samples a second", &others);
        canvas.section("windows a second", &windows);
        canvas.y += ROW;
    }
    let height = canvas.y + MARGIN + ROW;
    let plural = if machine.threads == 1 { "thread" } else { "threads" };
    let foot = format!(
        "{}, {} {plural}; best of the runs, with a line at the bound, or an arrow where the bound is beyond the scale",
        escaped(&machine.cpu),
        machine.threads
    );
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" \
         role=\"img\"><title>swath bench</title><style>{STYLE}</style><rect width=\"100%\" height=\"100%\" \
         fill=\"#fff\"/>\n{}<text class=\"s\" x=\"{MARGIN}\" y=\"{}\">{foot}</text>\n</svg>\n",
        canvas.body,
        height - MARGIN,
    )
}

/// Returns text that may stand between tags.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            // XML has no control characters.
            char if char.is_control() || matches!(char, '\u{fffe}' | '\u{ffff}') => safe.push('\u{fffd}'),
            char => safe.push(char),
        }
    }
    safe
}

struct Canvas {
    body: String,
    /// Top of the next row.
    y: u32,
}

impl Canvas {
    fn text(&mut self, class: &str, x: u32, text: &str) {
        let base = self.y + 17;
        // Writing into a String cannot fail.
        let _ = writeln!(self.body, "<text class=\"{class}\" x=\"{x}\" y=\"{base}\">{}</text>", escaped(text));
    }

    fn title(&mut self, file: &FileFigures) {
        let (width, height, bands) = file.shape;
        let shape = format!("{width} × {height} × {bands} {}, {}", file.dtype, file.compression.0);
        // The folder would only make the title long.
        let name = file.name.rsplit('/').next().unwrap_or(&file.name);
        self.text("h", MARGIN, &format!("{name}: {shape}"));
        self.y += ROW;
    }

    fn section(&mut self, unit: &str, figures: &[&Figure]) {
        if figures.is_empty() {
            return;
        }
        self.text("s", LEFT, unit);
        self.y += ROW;
        let best =
            |figure: &&Figure| figure.outcome.as_ref().map_or(0.0, |timing| timing.amount() / timing.times.best());
        let longest = figures.iter().map(best).fold(1e-9, f64::max);
        for figure in figures {
            self.row(figure, longest);
        }
    }

    /// Draws a figure. The longest bar of the section stands for the rate `longest`.
    fn row(&mut self, figure: &Figure, longest: f64) {
        let name = format!("{}, {}", figure.work.name(), figure.processor.name());
        self.text("e", LEFT - 10, &shortened(&name, 44));
        match &figure.outcome {
            Ok(timing) => self.bar(figure, timing, longest),
            Err(reason) => self.text("s", LEFT, &shortened(&format!("not measured: {reason}"), 90)),
        }
        self.y += ROW;
    }

    fn bar(&mut self, figure: &Figure, timing: &Timing, longest: f64) {
        let best = timing.amount() / timing.times.best();
        let place = |rate: f64| (rate / longest * f64::from(BAR)).clamp(1.0, f64::from(BAR) + 1.0);
        let colour = if matches!(figure.processor, ProcessorKind::Gpu(..)) { GPU_COLOUR } else { CPU_COLOUR };
        let (top, height) = (self.y + 4, ROW - 8);
        // Writing into a String cannot fail.
        let _ = writeln!(
            self.body,
            "<rect x=\"{LEFT}\" y=\"{top}\" width=\"{:.1}\" height=\"{height}\" fill=\"{colour}\"/>",
            place(best)
        );
        let mut value = if timing.windows.is_some() { digits(best) } else { rate(best) };
        if let Some(bound) = timing.bound() {
            let allowed = timing.counted(bound.rate);
            if allowed <= longest {
                let x = f64::from(LEFT) + place(allowed);
                let _ = writeln!(
                    self.body,
                    "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{}\" y2=\"{}\" stroke=\"#222\" stroke-width=\"2\"/>",
                    top - 2,
                    top + height + 2
                );
            } else {
                let (x, middle) = (LEFT + BAR + 6, top + height / 2);
                let _ = writeln!(self.body, "<path d=\"M{x} {}l6 5l-6 5z\" fill=\"#222\"/>", middle - 5);
            }
            let shown = if timing.windows.is_some() { digits(allowed) } else { rate(allowed) };
            let part = digits(timing.part_of_bound().unwrap_or(0.0) * 100.0);
            let _ = write!(value, "  ({part} % of {shown}, {})", bound.what);
        }
        self.text("s", LEFT + BAR + 20, &value);
    }
}

/// Returns at most `most` characters of a text.
fn shortened(text: &str, most: usize) -> String {
    let mut short: String = text.chars().take(most).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::{super::figure::examples, *};

    #[test]
    fn names_of_files_and_devices_cannot_break_the_drawing() {
        let files = [examples::file("a<b>&\"c\x07.tif"), examples::file("second.tif")];
        let drawn = draw(&examples::machine(), &files);
        assert!(drawn.contains("a&lt;b&gt;&amp;&quot;c\u{fffd}.tif") && drawn.contains("second.tif"));
        assert!(drawn.contains("Test &lt;GPU&gt; &amp; more"));
        assert!(!drawn.contains('\x07') && !drawn.contains("a<b>"));
    }

    #[test]
    fn a_bound_on_the_scale_is_a_line() {
        let mut file = examples::file("a.tif");
        for timing in file.figures.iter_mut().filter_map(|figure| figure.outcome.as_mut().ok()) {
            timing.bounds.truncate(1);
            timing.bounds.iter_mut().for_each(|bound| bound.rate = 1e8);
        }
        let drawn = draw(&examples::machine(), &[file]);
        assert_eq!((drawn.matches("<line ").count(), drawn.matches("<path ").count()), (4, 0));
        assert!(drawn.contains("200 % of 100 MB/s"), "{drawn}");
    }

    #[test]
    fn each_figure_has_a_bar_with_its_bound_or_a_reason() {
        let drawn = draw(&examples::machine(), &[examples::file("a.tif")]);
        // 200 MB/s of at most 400, 1600 windows of at most 3200: every bound is beyond the longest bar.
        assert_eq!((drawn.matches("<line ").count(), drawn.matches("<path ").count()), (0, 4));
        // The background, and a bar for each measurement.
        assert_eq!(drawn.matches("<rect ").count(), 5);
        assert!(drawn.contains("not measured: LZMA"), "{drawn}");
        assert!(drawn.contains("50.0 % of 400 MB/s"), "{drawn}");
        // Bars and marks stay within their column.
        for part in drawn.split("width=\"").skip(3) {
            let width: f64 = part.split('"').next().and_then(|text| text.parse().ok()).unwrap_or(0.0);
            assert!(width <= f64::from(BAR) + 1.0, "{width}");
        }
    }
}
