"""Labels of concepts beyond keywords: published explanation files, and a language model that explains, detects and names."""
