//! Translates options of `gdal_translate` to those of `swath convert`, before they are parsed.

use std::ffi::OsString;

use anyhow::{Context, Result, bail};

/// Returns swath's arguments for a command line that may have GDAL's.
pub fn translate(args: Vec<OsString>) -> Result<Vec<OsString>> {
    if args.get(1).is_none_or(|command| command != "convert") {
        return Ok(args);
    }
    let mut args = args.into_iter();
    let mut out: Vec<OsString> = args.by_ref().take(2).collect();
    let mut bands: Vec<String> = Vec::new();
    // Width and height of tiles are separate options; GDAL's default is 256.
    let mut tile = (None, None);
    let mut args = args.peekable();
    while let Some(arg) = args.next() {
        let Some(option) = arg.to_str() else {
            out.push(arg);
            continue;
        };
        let mut values = |count: usize| -> Result<Vec<String>> {
            (0..count)
                .map(|_| args.next().and_then(|value| value.into_string().ok()))
                .collect::<Option<Vec<String>>>()
                .with_context(|| format!("{option} takes {count} values"))
        };
        let mut put = |option: &str, value: String| out.push(format!("--{option}={value}").into());
        match option {
            "-of" | "--of" => match values(1)?.concat().to_uppercase().as_str() {
                "COG" => out.push("--cog".into()),
                "GTIFF" => {}
                other => bail!("-of {other}: swath writes GTiff and COG"),
            },
            "-co" | "--co" => creation_option(&values(1)?.concat(), &mut tile, &mut out)?,
            "-b" => bands.extend(values(1)?),
            "-srcwin" => put("window", values(4)?.join(",")),
            "-projwin" => {
                let [west, north, east, south] = <[String; 4]>::try_from(values(4)?).unwrap_or_default();
                put("bbox", format!("{west},{south},{east},{north}"));
            }
            "-a_nodata" => put("nodata", values(1)?.concat()),
            "-a_srs" => put("crs", values(1)?.concat()),
            "-ot" => put("dtype", values(1)?.concat()),
            "-r" => put("resampling", values(1)?.concat()),
            "-ovr" => put("overview", values(1)?.concat()),
            "-scale" => {
                // GDAL takes zero, two or four numbers here.
                let mut numbers = Vec::new();
                while numbers.len() < 4
                    && args.peek().and_then(|next| next.to_str()).is_some_and(|next| next.parse::<f64>().is_ok())
                {
                    numbers.extend(args.next().and_then(|next| next.into_string().ok()));
                }
                if numbers.is_empty() {
                    numbers.push("auto".to_owned());
                }
                // GDAL scales to this range for every output type.
                if numbers.len() < 4 {
                    numbers.extend(["0".to_owned(), "255.999".to_owned()]);
                }
                let value = numbers.join(",");
                out.push(format!("--scale={value}").into());
            }
            _ => out.push(arg),
        }
    }
    let (width, height) = tile;
    if width.is_some() || height.is_some() {
        let side = |side: Option<String>| side.unwrap_or_else(|| "256".to_owned());
        out.push(format!("--tile={},{}", side(width), side(height)).into());
    }
    if !bands.is_empty() {
        out.push(format!("--bands={}", bands.join(",")).into());
    }
    Ok(out)
}

/// Translates a creation option of GDAL's GTiff or COG driver.
fn creation_option(text: &str, tile: &mut (Option<String>, Option<String>), out: &mut Vec<OsString>) -> Result<()> {
    let (key, value) = text.split_once('=').with_context(|| format!("-co {text}: an option is KEY=VALUE"))?;
    let lower = value.to_lowercase();
    let yes = matches!(lower.as_str(), "yes" | "true" | "on" | "1");
    let mut put = |option: &str, value: &str| out.push(format!("--{option}={value}").into());
    match key.to_uppercase().as_str() {
        "COMPRESS" => put("compress", &lower),
        "LEVEL" | "ZLEVEL" | "ZSTD_LEVEL" | "LZMA_PRESET" => put("level", value),
        "QUALITY" | "JPEG_QUALITY" | "WEBP_LEVEL" => put("quality", value),
        "WEBP_LOSSLESS" if yes => out.push("--lossless".into()),
        // GDAL's default quality; it comes first, so that a quality given elsewhere overrides it.
        "WEBP_LOSSLESS" => out.insert(2, "--quality=75".into()),
        "NUM_THREADS" if lower == "all_cpus" => {}
        "NUM_THREADS" => put("threads", value),
        "MAX_Z_ERROR" => put("max-z-error", value),
        "PREDICTOR" => match lower.as_str() {
            "yes" => put("predictor", "type"),
            "no" => put("predictor", "none"),
            "standard" => put("predictor", "horizontal"),
            "floating_point" => put("predictor", "float"),
            other => put("predictor", other),
        },
        "TILED" if yes => {}
        "TILED" => put("strips", "0"),
        "BLOCKSIZE" => put("tile", value),
        "BLOCKXSIZE" => tile.0 = Some(value.to_owned()),
        "BLOCKYSIZE" => tile.1 = Some(value.to_owned()),
        "BIGTIFF" => match lower.as_str() {
            "yes" | "no" => put("bigtiff", &lower),
            _ => put("bigtiff", "auto"),
        },
        "OVERVIEWS" => match lower.as_str() {
            "none" => put("overviews", "none"),
            "auto" | "ignore_existing" => put("overviews", "auto"),
            other => {
                bail!("-co OVERVIEWS={other}: swath does not copy the overviews of the source, it computes new ones")
            }
        },
        "OVERVIEW_COUNT" => put("overviews", value),
        "OVERVIEW_RESAMPLING" | "RESAMPLING" => put("resampling", &lower),
        "INTERLEAVE" => put("interleave", &lower),
        "NBITS" => put("nbits", value),
        "PHOTOMETRIC" => put("photometric", &lower),
        "SPARSE_OK" if yes => out.push("--sparse".into()),
        "SPARSE_OK" => {}
        "ENDIANNESS" if lower == "big" => out.push("--big-endian".into()),
        "ENDIANNESS" => {}
        "STATISTICS" => put(
            "statistics",
            if lower == "auto" {
                "auto"
            } else if yes {
                "yes"
            } else {
                "no"
            },
        ),
        _ => bail!("-co {key}: swath does not know this option"),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translated(line: &str) -> String {
        let args = line.split(' ').map(OsString::from).collect();
        let out: Vec<String> = translate(args).unwrap().into_iter().map(|arg| arg.into_string().unwrap()).collect();
        out.join(" ")
    }

    #[test]
    fn gdal_options_become_ours() {
        assert_eq!(
            translated(
                "swath convert -of COG -co COMPRESS=ZSTD -co BIGTIFF=IF_SAFER -b 2 -b 1 -srcwin 1 2 3 4 a.tif b.tif"
            ),
            "swath convert --cog --compress=zstd --bigtiff=auto --window=1,2,3,4 a.tif b.tif --bands=2,1"
        );
        assert_eq!(
            translated("swath convert -projwin -10 60 20.5 40 -a_nodata -9999 -ot Int16 -scale a b"),
            "swath convert --bbox=-10,40,20.5,60 --nodata=-9999 --dtype=Int16 --scale=auto,0,255.999 a b"
        );
        assert_eq!(translated("swath convert -scale 0 1 -5 5 a b"), "swath convert --scale=0,1,-5,5 a b");
    }

    #[test]
    fn webp_is_lossless_or_of_the_requested_quality() {
        let co = |options: &str| translated(&format!("swath convert {options} a b"));
        assert_eq!(co("-co WEBP_LOSSLESS=YES -co WEBP_LEVEL=90"), "swath convert --lossless --quality=90 a b");
        // The last one wins.
        assert_eq!(co("-co WEBP_LEVEL=90 -co WEBP_LOSSLESS=NO"), "swath convert --quality=75 --quality=90 a b");
    }

    #[test]
    fn other_commands_are_left_alone() {
        assert_eq!(translated("swath dump a.tif -b 1"), "swath dump a.tif -b 1");
    }

    #[test]
    fn unknown_options_and_missing_values_are_errors() {
        for line in
            ["swath convert -of PNG a b", "swath convert -co NO a", "swath convert -co X=1 a", "swath convert a -b"]
        {
            assert!(translate(line.split(' ').map(OsString::from).collect()).is_err(), "{line}");
        }
    }
}
