-- due: members of what is due, oldest first, at most so many; the clock's step back is noticed (L12).

if now < seen then tick() end
return answer(due_now(ARGV[1]))
