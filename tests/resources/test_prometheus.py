"""What Prometheus reads is what was said."""

from prometheus_client.parser import text_string_to_metric_families

from resources.metrics_http import SampleCollector
from schemas.monitoring.metrics import LAG, STAGED_RECORDS, Sample


def scraped(*samples):
    text = SampleCollector(lambda: samples).text().decode()
    return {family.name: family for family in text_string_to_metric_families(text)}


def test_values_come_with_their_labels_their_help_and_their_type():
    odd = 'a "quoted\\ topic'
    families = scraped(
        Sample(LAG, ("us-east", "eu-west", odd, "0"), 7),
        Sample(LAG, ("us-east", "eu-west", odd, "1"), 0),
        Sample(STAGED_RECORDS, ("us-east",), 12),
    )

    lag, staged = families[LAG.name], families[STAGED_RECORDS.name.removesuffix("_total")]
    assert (lag.type, lag.documentation, staged.type) == ("gauge", LAG.help, "counter")
    assert [
        (each.labels["topic"], each.labels["partition"], each.value) for each in lag.samples
    ] == [
        (odd, "0", 7),
        (odd, "1", 0),
    ]
    assert [(each.name, each.value) for each in staged.samples] == [(STAGED_RECORDS.name, 12)]


def test_the_process_tells_of_itself():
    assert "process_start_time_seconds" in scraped()
