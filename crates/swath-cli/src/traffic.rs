//! Requests and bytes that a command exchanged with servers and stores.

use serde_json::{Value, json};
use swath::{Dataset, io::Traffic};

use crate::console;

/// Traffic of remote rasters, and how often the tile cache avoided some.
pub struct Cost {
    traffic: Traffic,
    /// Tiles that the cache held from an earlier read.
    hits: u64,
}

impl Cost {
    /// Returns the sum over some rasters, if any of them is remote.
    pub fn of<'a>(datasets: impl IntoIterator<Item = &'a Dataset>) -> Option<Self> {
        let costs = datasets.into_iter().filter_map(|dataset| {
            let traffic = dataset.traffic()?;
            Some(Self { traffic, hits: dataset.cache_hits() })
        });
        costs.reduce(Self::plus)
    }

    /// Adds the traffic of a written file, if that is remote.
    pub fn with_written(cost: Option<Self>, written: Option<Traffic>) -> Option<Self> {
        let written = written.map(|traffic| Self { traffic, hits: 0 });
        cost.into_iter().chain(written).reduce(Self::plus)
    }

    fn plus(mut self, other: Self) -> Self {
        self.traffic.requests += other.traffic.requests;
        self.traffic.retries += other.traffic.retries;
        self.traffic.received += other.traffic.received;
        self.traffic.sent += other.traffic.sent;
        self.hits += other.hits;
        self
    }

    /// Returns one line for people.
    pub fn line(&self) -> String {
        let Traffic { requests, retries, received, .. } = self.traffic;
        let plural = if requests == 1 { "request" } else { "requests" };
        let again = if retries > 0 { format!(" ({retries} sent again)") } else { String::new() };
        format!("Remote: {requests} {plural}{again}, {received} bytes\n")
    }

    /// Returns JSON for programs.
    pub fn document(&self) -> Value {
        let Traffic { requests, retries, received, sent, .. } = self.traffic;
        json!({ "requests": requests, "retries": retries, "received": received, "sent": sent })
    }

    /// Returns the counters, one line each.
    pub fn figures(&self) -> String {
        let rows = [
            ("requests", self.traffic.requests.to_string()),
            ("retries", self.traffic.retries.to_string()),
            ("received", console::bytes(self.traffic.received)),
            ("sent", console::bytes(self.traffic.sent)),
            ("cache hits", format!("{} tiles", self.hits)),
        ];
        rows.iter().map(|(name, value)| format!("{name:<12} {value}\n")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_is_one_line() {
        let cost = |requests, retries| {
            let mut traffic = Traffic::default();
            (traffic.requests, traffic.retries, traffic.received) = (requests, retries, 32768);
            Cost { traffic, hits: 0 }
        };
        assert_eq!(cost(1, 0).line(), "Remote: 1 request, 32768 bytes\n");
        assert_eq!(cost(1, 0).plus(cost(2, 1)).line(), "Remote: 3 requests (1 sent again), 65536 bytes\n");
    }
}
