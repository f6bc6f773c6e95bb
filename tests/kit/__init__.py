"""What tests share: helpers that are no tests.

- `waiting`, `sampled`, `nasty`, `cells`: waits for conditions, numbers of examples, odd texts, functions of a cell
- `forking`, `starts`, `lean`, `testers`: fast processes, which tests share one, a lean pytest, testers side by side
- `http_server`, `s3_server`, `hugging_face`, `stores`, `disks`: servers and object stores, disks that fail or are full
- `pdfs`, `compressed`, `descriptors`, `memory`, `logs`: documents, open files and memory of a process, lines of a log
- `chromium`, `axe`, `structure`, `notebooks`, `examples`: pages in a browser, notebooks, examples of the docs
"""
