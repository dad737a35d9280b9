# The base of the images: the Python that runs the tests on Debian, with the machine's configuration of pip.
FROM redbatch-engine/debian
COPY usr /usr
COPY etc /etc
RUN ldconfig && python -c 'import ssl, sqlite3, ctypes, lzma, bz2'
