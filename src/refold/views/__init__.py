"""From knowledge to words on a screen. Pure: gives text or data, prints nothing."""
