int place(void);
int main(void) { return place(); }
